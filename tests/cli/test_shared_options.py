"""Invalid arguments: one clear error, a hint, exit code 2."""

import pytest
from conftest import FiveRun, one_clear_error, run_nmt, run_together

Case = tuple[list[str], list[str]]  # arguments, parts of the error message


UNSUITABLE: list[Case] = [
    (["translate", "-i", "in.zh", "TEXT"], ["TEXT", "-i"]),
    (["translate", "--n-best", "2", "TEXT"], ["several hypotheses"]),
    (["translate", "--resume"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "/dev/null", "-o", "out"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "in.zh", "-o", "/dev/stdout"], ["--resume needs input and output files"]),
    (["translate", "--mbr", "chrf", "--beam", "4", "TEXT"], ["--mbr chooses among samples"]),
    (["translate", "--samples", "4"], ["--samples needs --mbr"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en", "--heads"], ["--hyp uses no model, but --heads needs one"]),
    (["translate", "--temperature", "0.5", "TEXT"], ["--temperature applies only to sampling"]),
    (["translate", "TEXT"], ["no model under runs/"]),
    (["eval", "--hyp", "test.hyp"], ["--ref is missing"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en"], ["cannot read", "No such file"]),
    (["config", "modle"], ["no key begins with 'modle'"]),
    (["config", "--of", "none.yaml"], ["cannot read none.yaml: No such file"]),
]


UNKNOWN: list[Case] = [
    (["translate", "--beem", "5"], ["--beem"]),
    (["translate", "--mbr", "ter"], ["--mbr", "chrf", "bleu"]),
    (["translate", "--beam", "five"], ["--beam", "integer"]),
    (["eval", "--device"], ["--device"]),
    (["trian", "five.yaml"], ["trian"]),
    (["train"], ["CONFIG"]),
]


@pytest.mark.parametrize(("args", "fragments"), [*UNSUITABLE, *UNKNOWN], ids=lambda value: " ".join(value))
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
