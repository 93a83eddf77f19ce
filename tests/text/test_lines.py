"""Lines are split at line feeds only, bad UTF-8 is replaced and reported, and pairs keep their line numbers."""

import gzip
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import DataError
from nmt.text import lines as module
from nmt.text.lines import Pair, Pause, decode_lines, is_blank, iter_lines, iter_pairs, one_line, raw_lines, with_pauses

BOM = b"\xef\xbb\xbf"


def decoded(content: bytes, *, strict: bool = False) -> list[str]:
    lines = raw_lines(io.BytesIO(content), "it")
    return list(decode_lines(lines, "it", strict=strict))


def write(path: Path, content: bytes) -> Path:
    """Write a file, compressed if its name says so."""
    if path.suffix == ".gz":
        content = gzip.compress(content)
    path.write_bytes(content)
    return path


# --- one stream -------------------------------------------------------------------------------------------

ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=8)
LINE = ANY.filter(lambda text: text == text.rstrip("\r").lstrip("\ufeff"))


@given(st.lists(LINE), st.sampled_from(["\n", "\r\n"]))
def test_lines_joined_by_line_feeds_are_read_back(lines: list[str], end: str) -> None:
    """Also with other characters at which str.splitlines splits."""
    content = end.join([*lines, ""])
    assert decoded(content.encode()) == lines


@given(st.lists(LINE), LINE.filter(bool))
def test_the_end_of_the_last_line_may_be_missing(lines: list[str], last: str) -> None:
    lines = [*lines, last]
    content = "\n".join(lines)
    assert decoded(content.encode()) == lines


def test_one_carriage_return_is_dropped() -> None:
    assert decoded(b"a\r\r\nb\rc\n") == ["a\r", "b\rc"]


def test_one_bom_of_the_first_line_is_dropped() -> None:
    assert decoded("\ufeffa\n\ufeffb\n".encode()) == ["a", "\ufeffb"]
    assert decoded(BOM + BOM + b"a") == ["\ufeffa"]


def test_other_separators_stay() -> None:
    line = "a\u2028b\x85c\x0bd\x0ce\x1cf"  # each of them is a line end for str.splitlines
    assert decoded(line.encode() + b"\n") == [line]


def test_bad_utf_8_is_replaced_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    content = "fine\nüber die\nläuft".encode("latin1")
    assert decoded(content) == ["fine", "\ufffdber die", "l\ufffduft"]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "it is not UTF-8 in 2 of 3 lines (line 2 at byte 1, …); bad bytes are replaced by U+FFFD"
    )


def test_a_corpus_may_have_few_bad_lines() -> None:
    content = b"\xfc\n" + b"fine\n" * 999
    assert len(decoded(content, strict=True)) == 1000
    with pytest.raises(DataError, match="is not UTF-8 in 20 of 1,019 lines"):
        decoded(content + b"\xfc\n" * 19, strict=True)


def test_a_file_in_utf_16_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a", b"\xff\xfea\x00")
    with pytest.raises(DataError, match="is in UTF-16"):
        list(iter_lines([path]))


# --- files ------------------------------------------------------------------------------------------------


def test_a_bom_is_dropped_in_each_of_several_files_compressed_or_not(tmp_path: Path) -> None:
    plain, compressed = tmp_path / "a", tmp_path / "b.gz"
    for path in (plain, compressed):
        write(path, BOM + b"a\r\n\nno end")
    lines = iter_lines([plain, compressed, plain])
    assert list(lines) == ["a", "", "no end"] * 3


COMPRESSED = gzip.compress(b"some text that is long enough to be cut and flipped\n" * 9, mtime=0)
CUT = COMPRESSED[:-12]
LENGTH = COMPRESSED[-4:]  # of the text; before it is its checksum
FLIPPED = COMPRESSED[:-8] + bytes(4) + LENGTH


REASONS = {"Compressed file ended": CUT, "CRC check failed": FLIPPED, "Not a gzipped file": b"text\n"}


@pytest.mark.parametrize("reason", REASONS)
def test_a_damaged_gz_file_is_refused(tmp_path: Path, reason: str) -> None:
    path = tmp_path / "train.en.gz"
    path.write_bytes(REASONS[reason])
    with pytest.raises(DataError, match=f"cannot read {path}: {reason}"):
        list(iter_lines([path]))


def refusal(path: Path) -> str:
    """The message of the error of reading a file."""
    with pytest.raises(DataError) as caught:
        list(iter_lines([path]))
    assert caught.value.exit_code == 2
    assert caught.value.hint
    return str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    absent = tmp_path / "absent.gz"
    assert refusal(absent) == f"cannot read {absent}: No such file or directory"
    assert refusal(tmp_path) == f"cannot read {tmp_path}: Is a directory"


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1_000)
    content = b"fine\n" + bytes(1_001)
    bomb = write(tmp_path / "zeros.gz", content)
    assert refusal(bomb) == f"{bomb}, line 2: over 1,000 bytes"


def test_an_endless_device_is_refused() -> None:
    assert refusal(Path("/dev/urandom")) == "/dev/urandom is a device, not a file"
    assert list(iter_lines([Path("/dev/null")])) == []


def test_line_numbers_of_pairs_count_over_all_files(tmp_path: Path) -> None:
    first = write(tmp_path / "a.de", b"eins\nzwei\n")
    second = write(tmp_path / "b.de.gz", b"drei")
    target = write(tmp_path / "all.en", b"one\n\nthree\n")
    pairs = iter_pairs([first, second], [target])
    assert next(pairs) == Pair(1, "eins", "one")
    assert next(pairs) == Pair(2, "zwei", "")
    assert list(pairs) == [Pair(3, "drei", "three")]


OTHER_LENGTHS = {
    "a has 3 lines but b has 1": (b"a\nb\nc\n", b"x\n"),
    "a has 1 lines but b has 2": (b"a\n", b"x\ny\n"),
    "a is empty": (b"", b""),
}


@pytest.mark.parametrize("reason", OTHER_LENGTHS)
def test_sides_of_other_lengths_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    source, target = OTHER_LENGTHS[reason]
    Path("a").write_bytes(source)
    Path("b").write_bytes(target)
    pairs = iter_pairs([Path("a")], [Path("b")])
    with pytest.raises(DataError, match=f"^{reason}$"):
        list(pairs)


# --- single lines -----------------------------------------------------------------------------------------

BLANK = st.text(st.sampled_from("\0\ufeff \t\r\v\f\u3000\u00a0\u2028\x85\x1c"), max_size=4)


@given(BLANK, st.sampled_from("a。0中\u2581\u200b\u0301"), BLANK)
def test_a_line_is_blank_if_it_has_only_white_space_nul_and_bom(left: str, character: str, right: str) -> None:
    assert is_blank(left + right)
    assert not is_blank(left + character + right)


def test_one_line_replaces_line_ends_and_nothing_else() -> None:
    assert one_line("a\r\nb\tc\u2028d\n") == "a  b\tc\u2028d "


def next_line(items: Iterator[str | Pause]) -> str:
    """The next item that is no pause."""
    return next(item for item in items if isinstance(item, str))


def test_a_slow_stream_has_pauses_and_its_errors_are_raised() -> None:
    go_on = threading.Event()

    def slow() -> Iterator[str]:
        yield "a"
        go_on.wait()
        yield "b"
        raise DataError("torn")

    items = with_pauses(slow(), after_s=0.01)
    assert next_line(items) == "a"
    assert isinstance(next(items), Pause)
    go_on.set()
    assert next_line(items) == "b"
    with pytest.raises(DataError, match="torn"):
        list(items)


N_LINES = {b"": 0, b"a": 1, b"a\n": 1, b"a\n\nb": 3, b"\n" * 2_000_000: 2_000_000}


@pytest.mark.parametrize("content", N_LINES, ids=len)
def test_n_lines_left_counts_without_reading_on(tmp_path: Path, content: bytes) -> None:
    file = write(tmp_path / "text", b"first\n" + content)
    with module.open_bytes(file) as stream:
        stream.readline()
        assert module.n_lines_left(stream, str(file)) == N_LINES[content]
        assert stream.read() == content
