"""Invalid arguments: one clear error, a hint, exit code 2."""

import pytest
from conftest import FiveRun, one_clear_error, run_nmt, run_together

Case = tuple[list[str], list[str]]  # arguments, parts of the error message


UNSUITABLE: list[Case] = [
    (["translate", "-i", "in.zh", "TEXT"], ["TEXT", "-i"]),
    (["translate", "--n-best", "2", "TEXT"], ["several hypotheses"]),
    (["translate", "--resume"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "/dev/null", "-o", "out"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "in.zh", "-o", "/dev/null"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "in.zh", "-o", "/dev/stdout"], ["--resume needs input and output files"]),
    (["translate", "--mbr", "chrf", "--beam", "4", "TEXT"], ["--mbr chooses among samples"]),
    (["eval", "--samples", "4"], ["--samples needs --mbr"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en", "--heads"], ["--hyp uses no model, but --heads needs one"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en", "--beam", "4"], ["--hyp uses no model, but --beam needs one"]),
    (["eval", "--top-p", "0.9"], ["--top-p applies only to sampling"]),
    (["translate", "--temperature", "0.5", "TEXT"], ["--temperature applies only to sampling"]),
    (["translate", "TEXT"], ["no model under runs/"]),
    (["eval"], ["no model under runs/"]),
    (["eval", "--hyp", "test.hyp"], ["--hyp", "--ref"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en"], ["cannot read", "No such file"]),
    (["config", "modle"], ["no key begins with 'modle'"]),
    (["config", "--of", "none.yaml"], ["cannot read none.yaml: No such file"]),
    (["train", "none.yaml"], ["cannot read none.yaml: No such file"]),
    (["tokenize", "."], ["cannot read .: Is a directory"]),
]


UNKNOWN: list[Case] = [
    (["translate", "--beem", "5"], ["--beem"]),
    (["translate", "-5 degrees"], ["No such option", "-5"]),
    (["eval", "--hyp", "a", "--ref", "c", "--hyp", "b"], ["--hyp is given 2 times"]),
    (["translate", "-i", "a", "--input", "b"], ["--input is given 2 times"]),
    (["export", "--to", "ctranslate2", "-o", "x", "-m", "a", "-m", "b"], ["--model is given 2 times"]),
    (["translate", "--mbr", "ter"], ["--mbr", "chrf", "bleu"]),
    (["translate", "--beam", "five"], ["--beam", "integer"]),
    (["eval", "--device"], ["--device"]),
    (["trian", "five.yaml"], ["trian"]),
    (["train"], ["CONFIG"]),
]


@pytest.mark.parametrize(
    ("args", "fragments"), [*UNSUITABLE, *UNKNOWN], ids=[" ".join(args) for args, _ in [*UNSUITABLE, *UNKNOWN]]
)
def test_unsuitable_and_unknown_arguments_are_refused(args: list[str], fragments: list[str]) -> None:
    one_clear_error(run_nmt(*args), 2, *fragments)


def test_search_options_out_of_range_are_refused(five_run: FiveRun) -> None:
    cases: list[Case] = [
        (["--json", "--n-best", "3", "--beam", "2"], ["n_best is 3, but there are 2 hypotheses"]),
        (["--device", "abacus"], ["no device 'abacus'"]),
        (["--beam", "0"], ["beam: input should be greater than or equal to 1, got 0"]),
        (["--alpha", "400"], ["alpha: input should be less than or equal to 10, got 400.0"]),
        (["--sample", "--temperature", "1e-40"], ["temperature: input should be greater than or equal to 0.001"]),
        (["--sample", "--top-p", "1.5"], ["top_p: input should be less than or equal to 1, got 1.5"]),
    ]
    done = run_together(*(["translate", "-m", five_run.run, *args, "我"] for args, _ in cases))
    for one, (_, fragments) in zip(done, cases, strict=True):
        one_clear_error(one, 2, *fragments)
