"""Every error has a message, a hint and an exit code, and the package offers it."""

import signal

import pytest

import nmt
from nmt.errors import InputError, NmtError, OutputError, StoppedError


@pytest.mark.parametrize("kind", [nmt.NmtError, OutputError, nmt.DivergedError])
def test_an_error_has_a_message_a_hint_and_exit_code_1(kind: type[NmtError]) -> None:
    error = kind("what", hint="do")
    assert (str(error), error.hint, error.exit_code) == ("what", "do", 1)
    assert kind("what").hint == ""


@pytest.mark.parametrize("kind", [nmt.ConfigError, nmt.DataError, nmt.ModelError])
def test_what_the_user_gave_can_be_caught_as_one_and_has_exit_code_2(kind: type[NmtError]) -> None:
    assert issubclass(kind, InputError)
    assert issubclass(kind, nmt.NmtError)
    assert kind("what").exit_code == 2


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_128_and_its_number(number: int, exit_code: int) -> None:
    error = StoppedError("stopped", number, hint="go on")
    assert (str(error), error.hint, error.exit_code) == ("stopped", "go on", exit_code)


def test_dir_lists_what_the_package_offers() -> None:
    assert {"load", "Translator", "attention_summary", "NmtError"} <= set(dir(nmt))
    assert all(hasattr(nmt, name) for name in dir(nmt))
