"""Every error has a message, a hint and an exit code."""

import signal

import pytest

import nmt
from nmt.errors import InputError, NmtError, OutputError, StoppedError


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (nmt.NmtError, 1),
        (nmt.OutputError, 1),
        (nmt.DivergedError, 1),
        (nmt.InputError, 2),
        (nmt.ConfigError, 2),
        (nmt.DataError, 2),
        (nmt.ModelError, 2),
    ],
)
def test_an_error_has_a_message_a_hint_and_an_exit_code(kind: type[NmtError], exit_code: int) -> None:
    error = kind("what", hint="do")
    assert (str(error), error.hint, error.exit_code) == ("what", "do", exit_code)
    assert kind("what").hint == ""
    assert isinstance(error, NmtError)


def test_what_the_user_gave_can_be_caught_as_one() -> None:
    assert issubclass(nmt.ConfigError, InputError)
    assert issubclass(nmt.DataError, InputError)
    assert issubclass(nmt.ModelError, InputError)
    assert not issubclass(OutputError, InputError)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_128_and_its_number(number: int, exit_code: int) -> None:
    error = StoppedError("stopped", number, hint="go on")
    assert (str(error), error.hint, error.exit_code) == ("stopped", "go on", exit_code)
    assert NmtError.exit_code == 1  # the class attribute is unchanged
