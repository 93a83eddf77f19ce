"""Resumable output; tests/reliability/test_lines.py kills a command."""

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import SOURCE, FiveRun, run_nmt

from nmt.cli import resumable
from nmt.cli.rendering import as_json
from nmt.cli.resumable import resumed_output, rewrite
from nmt.cli.translate import of_markup
from nmt.errors import InputError, OutputError
from nmt.translate.segments import Translation
from nmt.translate.translator import Translator

ORIGIN = {"input": "a", "model": "b"}


def test_a_part_file_that_is_in_use_or_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "out"
    first, again = resumed_output(path, ORIGIN), resumed_output(path, ORIGIN)
    with first, pytest.raises(InputError, match=r"another command is writing .*out\.part"), again:
        pass
    absent = resumed_output(tmp_path / "absent" / "out", ORIGIN)
    with pytest.raises(OutputError, match=r"cannot write .*out\.part: No such file") as caught, absent:
        pass
    assert caught.value.hint
    path.unlink()
    (tmp_path / "out.part").write_bytes(b"a line of another program, without an end")
    with pytest.raises(InputError, match="was started with another input"), resumed_output(path, ORIGIN):
        pass
    (tmp_path / "out.part").unlink()
    os.mkfifo(tmp_path / "out.part")
    blocked = pytest.raises(OutputError, match=r"cannot write .*out\.part: File or stream is not seekable")
    with blocked, resumed_output(path, ORIGIN):
        pass


LINES = [SOURCE[0], "", f"<p>{SOURCE[1]}</p><p>{SOURCE[1]}</p>", "<br>", f"{SOURCE[2]} **{SOURCE[3]}**", SOURCE[0]] * 2


@pytest.mark.parametrize("markup", ["text", "html", "markdown"])
@pytest.mark.parametrize("options", [{"beam": 2, "n_best": 2}, {"sample": True, "beam": 1}], ids=["search", "sampling"])
def test_a_resumed_output_has_the_bytes_of_an_unbroken_one(
    translator: Translator,
    five_run: FiveRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    markup: Any,
    options: dict[str, Any],
) -> None:
    """Scores to the last digit, seeds of sampling, and whatever line it was interrupted at."""
    monkeypatch.setattr(resumable, "WINDOW", 4)
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("\n".join(LINES))
    writer = translator if markup == "text" else of_markup(translator, markup)
    arguments = {"options": translator.with_options(max_length_b=8, **options), "batch_size": 3}

    def run(n_lines: int) -> bytes:
        """Write so many lines, then stop as if interrupted."""
        written = iter(range(n_lines))

        def render(translation: Translation) -> str:
            if next(written, None) is None:
                raise InterruptedError
            return as_json(translation)

        rewrite(source, output, [five_run.run], writer, 0, arguments, {}, render)
        return output.read_bytes()

    unbroken = run(len(LINES))
    assert unbroken.count(b"\n") == len(LINES)
    for n_lines in (0, 1, 4, 6, len(LINES) - 1):
        output.unlink()
        with pytest.raises(InterruptedError):
            run(n_lines)
        with (tmp_path / "out.part").open("ab") as part:
            part.write(b"half a li")
        assert run(len(LINES)) == unbroken


@pytest.mark.parametrize("markup", ["html", "markdown"])
def test_lines_with_markup_are_resumed(five_run: FiveRun, tmp_path: Path, markup: str) -> None:
    (tmp_path / "in").write_text("\n".join(LINES))
    common = ["translate", "-m", five_run.run, "--format", markup, "-i", tmp_path / "in", "-o"]
    assert run_nmt(*common, tmp_path / "whole").returncode == 0
    assert run_nmt(*common, tmp_path / "out", "--resume").returncode == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
