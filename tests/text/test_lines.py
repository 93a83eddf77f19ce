"""Lines are split at line feeds only, bad UTF-8 is replaced and reported, and pairs keep their line numbers."""

import gzip
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.errors import DataError
from nmt.text import lines as module
from nmt.text.lines import Pair, decode_lines, is_blank, iter_lines, iter_pairs, one_line


def decoded(content: bytes) -> list[str]:
    return list(decode_lines(io.BytesIO(content), "it"))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=8).filter(
    lambda text: not text.endswith("\r")
)


@hypothesis_settings(max_examples=100)
@given(st.lists(TEXT).filter(lambda lines: not (lines and lines[0].startswith("\ufeff"))), st.data())
def test_lines_joined_by_line_feeds_are_read_back(lines: list[str], data: st.DataObject) -> None:
    """Also with carriage returns, and with other characters at which str.splitlines splits."""
    ends = data.draw(st.lists(st.sampled_from(["\n", "\r\n"]), min_size=len(lines), max_size=len(lines)))
    content = "".join(text + end for text, end in zip(lines, ends, strict=True)).encode()
    assert decoded(content) == lines
    if lines and lines[-1]:  # the last line's end may be missing
        assert decoded(content.removesuffix(b"\n").removesuffix(b"\r")) == lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\r\r\nb\rc\n", ["a\r", "b\rc"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfa", ["\ufeffa"]),
        ("a\u2028b\x85c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\x85c\x0bd\x0ce\x1cf"]),
    ],
)
def test_carriage_return_bom_and_other_separators(content: bytes, lines: list[str]) -> None:
    assert decoded(content) == lines


def test_bad_utf_8_is_replaced_and_reported_once_per_file(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    first = write(tmp_path / "a.de", "fine\nab\u00fcc läuft über die Straße\nfine".encode("latin1"))
    second = write(tmp_path / "b.de", "über die Straße läuft\n".encode("latin1") * 3379 + "caf\u00e9\n".encode() * 2)
    assert list(iter_lines([first, second]))[:2] == ["fine", "ab\ufffdc l\ufffduft \ufffdber die Stra\ufffde"]
    end = "; bad bytes are replaced by U+FFFD"
    assert [record.getMessage() for record in caplog.records] == [
        f"{first} is not UTF-8 in 1 of 3 lines (line 2 at byte 3){end}",
        f"{second} is not UTF-8 in 3,379 of 3,381 lines (line 1 at byte 1, line 2 at byte 1, line 3 at byte 1, …){end}",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_utf_16_is_refused_even_if_few_lines_are_bad() -> None:
    content = "ABC\n".encode("utf-16") + b"fine\n" * 999
    assert len(decoded(content)) == 1000
    with pytest.raises(DataError, match="is not UTF-8 in 1 of 1,000 lines"):
        list(decode_lines(io.BytesIO(content), "it", strict=True))


def test_a_bom_is_dropped_in_each_of_several_files_compressed_or_not(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, b"\xef\xbb\xbfa\r\n\nno end") for name in ("a", "b.gz", "c")]
    assert list(iter_lines(paths)) == ["a", "", "no end"] * 3
    assert list(iter_lines([])) == []


COMPRESSED = gzip.compress(b"some text that is long enough to be cut and flipped\n" * 9, mtime=0)
FLIPPED = COMPRESSED[:-8] + bytes(4) + COMPRESSED[-4:]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(COMPRESSED[:-12], "Compressed file ended"), (FLIPPED, "CRC check failed"), (b"text\n", "Not a gzipped file")],
)
def test_a_damaged_gz_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "train.en.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"cannot read {path}: {reason}"):
        list(iter_lines([path]))


def test_what_is_no_file_of_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1_000)
    bomb = write(tmp_path / "zeros.gz", b"fine\n" + bytes(1_001))
    for path, reason in (
        (tmp_path / "absent.gz", f"cannot read {tmp_path}/absent.gz: No such file or directory"),
        (tmp_path, f"cannot read {tmp_path}: Is a directory"),
        (bomb, f"{bomb}, line 2: over 1,000 bytes"),
        (Path("/dev/urandom"), "/dev/urandom is a device, not a file"),
    ):
        with pytest.raises(DataError) as caught:
            list(iter_lines([path]))
        assert (str(caught.value), caught.value.exit_code) == (reason, 2)
        assert caught.value.hint
    assert list(iter_lines([Path("/dev/null")])) == []


def test_line_numbers_of_pairs_count_over_all_files(tmp_path: Path) -> None:
    source = [write(tmp_path / "a.de", b"eins\nzwei\n"), write(tmp_path / "b.de.gz", b"drei")]
    target = [write(tmp_path / "all.en", b"one\n\nthree\n")]
    assert list(iter_pairs(source, target)) == [Pair(1, "eins", "one"), Pair(2, "zwei", ""), Pair(3, "drei", "three")]


BLANK = st.text(st.sampled_from("\0\ufeff \t\r\v\f\u3000\u00a0\u2028\x85\x1c"), max_size=4)


@hypothesis_settings(max_examples=50)
@given(BLANK, st.sampled_from("a。0中\u2581\u200b\u0301"), BLANK)
def test_a_line_is_blank_if_it_has_only_white_space_nul_and_bom(left: str, character: str, right: str) -> None:
    assert is_blank(left + right)
    assert not is_blank(left + character + right)


@hypothesis_settings(max_examples=50)
@given(st.text(st.sampled_from("ab\r\n\t\u2028")))
def test_one_line_replaces_line_ends_and_nothing_else(text: str) -> None:
    line = one_line(text)
    assert list(decode_lines(io.BytesIO(line.encode() + b"\n"), "it")) == [line]
    assert len(line) == len(text)
    assert all(b == a or (a in "\r\n" and b == " ") for a, b in zip(text, line, strict=True))


def test_a_slow_stream_has_pauses_and_its_errors_are_raised() -> None:
    go_on = threading.Event()

    def slow() -> Iterator[str]:
        yield "a"
        go_on.wait()
        yield "b"
        raise DataError("torn")

    lines = module.with_pauses(slow(), after_s=0.01)
    assert next(line for line in lines if isinstance(line, str)) == "a"
    assert isinstance(next(lines), module.Pause)
    go_on.set()
    assert next(line for line in lines if isinstance(line, str)) == "b"
    with pytest.raises(DataError, match="torn"):
        list(lines)


@pytest.mark.parametrize(("content", "n"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3), (b"\n" * 2**21, 2**21)])
def test_n_lines_left_counts_without_reading_on(tmp_path: Path, content: bytes, n: int) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"first\n" + content)
    with module.open_bytes(file) as stream:
        stream.readline()
        assert module.n_lines_left(stream) == n
        assert stream.read() == content
