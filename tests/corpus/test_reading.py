"""The lines of a corpus as bytes."""

import gzip
from pathlib import Path

import pytest

from nmt.corpus import reading
from nmt.corpus.reading import CorpusFiles, chunks, decode, lines_at, read_spans, sample, survey

SOURCE = [b"a0", b"a1", b"a2", b"b0\r", b"", b"b2"]
TARGET = [b"t0", b"t1", b"t2", b"t3", b"t4", b"t5", b"t6", b"t7"]
BOM = b"\xef\xbb\xbf"


@pytest.fixture
def files(tmp_path: Path) -> CorpusFiles:
    """The source in two files, one of them packed and one without a newline at the end; two target lines too many."""
    packed, plain, target = tmp_path / "a.de.gz", tmp_path / "b.de", tmp_path / "a.en"
    packed.write_bytes(gzip.compress(b"a0\na1\na2\n"))
    plain.write_bytes(BOM + b"b0\r\n\nb2")
    target.write_bytes(BOM + b"\n".join(TARGET) + b"\n")
    return CorpusFiles("train", [packed, plain], [target])


def test_lines_are_counted_and_sampled(files: CorpusFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    # At four pairs, every second one is dropped.
    monkeypatch.setattr(reading, "MAX_SAMPLE", 4)
    surveyed = survey(files)
    assert surveyed.n_source == surveyed.n_pairs == 6
    assert surveyed.n_target == 8
    assert surveyed.source == ["a0", "a2", ""]
    assert surveyed.target == ["t0", "t2", "t4"]


def test_the_last_lines_are_sampled(files: CorpusFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_SAMPLE", 4)
    assert sample(files.target, 2, 6) == ["t2", "t4", "t6"]


def test_pairs_are_read_in_chunks(files: CorpusFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 4)
    first, second = chunks(files)
    assert (first.first, second.first) == (1, 5)
    assert first.source + second.source == SOURCE
    assert first.target + second.target == TARGET[:6]


def test_lines_by_number(files: CorpusFiles) -> None:
    lines = lines_at(files.source, [5, 2, 4, 99])
    assert lines == {2: b"a1", 4: b"b0\r", 5: b""}
    assert lines_at(files.source, []) == {}


def test_text_is_decoded_as_training_reads_it() -> None:
    assert decode(b"a\r") == "a"
    assert decode(b"caf\xe9") == "caf\ufffd"


def test_spans_are_read_in_one_pass(files: CorpusFiles) -> None:
    # They may overlap, be empty, or end after the last line.
    spans = [(0, 2), (1, 4), (1, 4), (5, 5), (7, 99), (50, 60)]
    expected = [TARGET[start:end] for start, end in spans]
    result = list(read_spans(files.target, spans))
    assert result == expected
