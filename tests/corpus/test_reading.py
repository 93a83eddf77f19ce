"""The lines of a corpus as bytes."""

import gzip
from pathlib import Path

import pytest

from nmt.corpus import reading
from nmt.corpus.reading import CorpusFiles, chunks, decode, lines_at, read_spans, survey


@pytest.fixture
def files(tmp_path: Path) -> CorpusFiles:
    source = [tmp_path / "a.de.gz", tmp_path / "b.de"]
    source[0].write_bytes(gzip.compress(b"".join(b"a%d\n" % i for i in range(7))))
    source[1].write_bytes(b"\xef\xbb\xbfb0\r\n\nb2")
    target = tmp_path / "a.en"
    target.write_bytes(b"\xef\xbb\xbf" + b"".join(b"t%d\n" % i for i in range(12)))
    return CorpusFiles("train", source, [target])


def test_lines_are_counted_sampled_and_read_in_chunks(files: CorpusFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SAMPLE_LIMIT", 3)
    monkeypatch.setattr(reading, "CHUNK", 4)
    found = survey(files)
    assert (found.n_source, found.n_target, found.n_pairs) == (10, 12, 10)
    assert found.target == ["t0", "t2", "t4", "t6", "t8"]
    parts = list(chunks(files))
    assert [part.first for part in parts] == [1, 5, 9]
    source, target = ([line for part in parts for line in getattr(part, side)] for side in ("source", "target"))
    assert source == [*(b"a%d" % i for i in range(7)), b"b0\r", b"", b"b2"]
    assert target[0] == b"t0"
    assert len(target) == 10


def test_lines_by_number(files: CorpusFiles) -> None:
    assert lines_at(files.source, [9, 2, 8, 99]) == {2: b"a1", 8: b"b0\r", 9: b""}
    assert lines_at(files.source, []) == {}


def test_text_is_decoded_as_training_reads_it() -> None:
    assert decode(b"a\r") == "a"
    assert decode(b"caf\xe9") == "caf\ufffd"


def test_spans_are_read_in_one_pass(files: CorpusFiles) -> None:
    spans = [(0, 2), (1, 4), (1, 4), (6, 6), (8, 11), (11, 99), (50, 60)]
    lines = [b"t%d" % i for i in range(12)]
    assert list(read_spans(files.target, spans)) == [lines[start:end] for start, end in spans]
