"""Unsuitable arguments: one clear error, a hint, exit code 2."""

import pytest
from conftest import one_clear_error, run_nmt

Case = tuple[list[str], list[str]]  # arguments, parts of the error message


UNSUITABLE: list[Case] = [
    (["translate", "-i", "in.zh", "TEXT"], ["TEXT", "-i"]),
    (["translate", "--n-best", "2", "TEXT"], ["several hypotheses"]),
    (["translate", "--resume"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "/dev/null", "-o", "out"], ["--resume needs input and output files"]),
    (["translate", "--resume", "-i", "in.zh", "-o", "/dev/stdout"], ["--resume needs input and output files"]),
    (["translate", "--temperature", "0.5", "TEXT"], ["--temperature applies only to sampling"]),
    (["translate", "TEXT"], ["no model under runs/"]),
    (["eval", "--hyp", "test.hyp", "--ref", "test.en"], ["cannot read", "No such file"]),
    (["trian", "five.yaml"], ["trian"]),
    (["config", "modle"], ["no key begins with 'modle'"]),
    (["config", "--of", "none.yaml"], ["cannot read none.yaml: No such file"]),
]


@pytest.mark.parametrize(("args", "fragments"), UNSUITABLE, ids=lambda value: " ".join(value))
def test_unsuitable_arguments_are_refused(args: list[str], fragments: list[str]) -> None:
    one_clear_error(run_nmt(*args), 2, *fragments)
