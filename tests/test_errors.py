"""Every error has a message, a hint and an exit code, and the package offers it."""

import signal

import pytest

import nmt
from nmt.errors import InputError, NmtError, StoppedError


@pytest.mark.parametrize("kind", [nmt.NmtError, nmt.OutputError, nmt.DivergedError, nmt.LostRankError])
def test_a_failure_has_exit_code_1(kind: type[NmtError]) -> None:
    error = kind("what", hint="do")
    assert (str(error), error.hint, error.exit_code) == ("what", "do", 1)
    assert not isinstance(error, InputError)


@pytest.mark.parametrize("kind", [nmt.InputError, nmt.ConfigError, nmt.DataError, nmt.ModelError])
def test_what_the_user_gave_has_exit_code_2_and_can_be_caught_as_one(kind: type[NmtError]) -> None:
    assert isinstance(kind("what"), InputError)
    assert (kind("what").hint, kind.exit_code) == ("", 2)


def test_a_signal_ends_with_128_and_its_number() -> None:
    assert StoppedError("stopped", signal.SIGTERM).exit_code == 143
    assert NmtError.exit_code == 1  # the class attribute is unchanged
