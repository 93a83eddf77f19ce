"""Resumable output; tests/reliability/test_lines.py kills a command."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from conftest import SOURCE, FiveRun

from nmt.cli import resumable
from nmt.cli.rendering import as_json
from nmt.cli.resumable import resumed_output, rewrite
from nmt.cli.translate import of_markup
from nmt.errors import InputError, OutputError
from nmt.translate.translator import Translator
from nmt.translate.units import Translation

HEADER = b"hash\n"


def write(path: Path) -> None:
    with resumed_output(path, HEADER, 1):
        pass


def test_a_part_file_that_is_in_use_is_an_error(tmp_path: Path) -> None:
    with resumed_output(tmp_path / "out", HEADER, 1), pytest.raises(InputError, match="another translation"):
        write(tmp_path / "out")


def test_a_folder_that_is_absent_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*out\.part: No such file") as caught:
        write(tmp_path / "absent" / "out")
    assert caught.value.hint


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    part = tmp_path / "out.part"
    part.write_bytes(b"a line without an end")
    with pytest.raises(InputError, match="was started with another input"):
        write(tmp_path / "out")
    assert part.read_bytes() == b"a line without an end"


def test_a_pipe_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.part")
    with pytest.raises(OutputError, match=r"cannot write .*out\.part: File or stream is not seekable"):
        write(tmp_path / "out")


SOME_LINES = [
    SOURCE[0],
    "",
    f"<p>{SOURCE[1]}</p><p>{SOURCE[1]}</p>",
    "<br>",
    f"{SOURCE[2]} **{SOURCE[3]}**",
    SOURCE[0],
]
LINES = SOME_LINES * 2


def stopping_after(n_lines: int) -> Callable[[Translation], str]:
    """Return a function that renders so many lines, then stops as if interrupted."""
    rendered: list[str] = []

    def render(translation: Translation) -> str:
        if len(rendered) == n_lines:
            raise InterruptedError
        rendered.append(as_json(translation))
        return rendered[-1]

    return render


@pytest.mark.parametrize("markup", ["text", "html", "markdown"])
@pytest.mark.parametrize("options", [{"beam": 2, "n_best": 2}, {"sample": True, "beam": 1}], ids=["search", "sampling"])
def test_a_resumed_output_has_the_bytes_of_an_unbroken_one(
    translator: Translator,
    five_run: FiveRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    markup: Literal["text", "html", "markdown"],
    options: dict[str, Any],
) -> None:
    """Scores to the last digit, seeds of sampling, and whatever line it was interrupted at."""
    monkeypatch.setattr(resumable, "WINDOW", 4)
    source = tmp_path / "in"
    source.write_text("\n".join(LINES))
    writer = translator if markup == "text" else of_markup(translator, markup)
    arguments = {"options": translator.with_options(max_length_b=8, **options), "batch_size": 3}

    def run(output: Path, n_lines: int) -> bytes:
        rewrite(source, output, [five_run.run], writer, arguments, {}, stopping_after(n_lines))
        return output.read_bytes()

    # Interrupted at the start, within a window, at its end, and before the last line.
    unbroken = run(tmp_path / "unbroken", len(LINES))
    result = unbroken.count(b"\n")
    assert result == len(LINES)
    for n_lines in (0, 1, 4, 6, len(LINES) - 1):
        output = tmp_path / f"broken-{n_lines}"
        with pytest.raises(InterruptedError):
            run(output, n_lines)
        with (tmp_path / f"broken-{n_lines}.part").open("ab") as part:
            part.write(b"half a li")
        assert run(output, len(LINES)) == unbroken
