"""`nmt tokenize`."""

import pytest
from conftest import TARGET, FiveCorpus, err_lines, file_bytes, out_lines, refused, run_in, run_nmt

from nmt.text.tokenizer import Tokenizer


def test_tokenize_writes_a_tokenizer_and_shows_pieces(five_corpus: FiveCorpus) -> None:
    done = run_in(five_corpus.home, "tokenize five.yaml --show '我 昨天 买 了 茶 。' --show 'tea  or €'")
    tokenizer = Tokenizer((five_corpus.run / "tokenizer.model").read_bytes())
    chinese, english = out_lines(done)
    assert chinese.split(" ") == tokenizer.pieces(tokenizer.encode("我 昨天 买 了 茶 。"))
    assert english.split(" ") == tokenizer.pieces(tokenizer.encode("tea  or €"))
    assert "▁昨天" in chinese
    # Characters that are not in the corpus are spelled in bytes.
    assert english.endswith(" <0xE2> <0x82> <0xAC>")


def test_tokenize_logs_statistics(five_corpus: FiveCorpus) -> None:
    log = err_lines(run_in(five_corpus.home, "tokenize five.yaml"))
    tokenizer = Tokenizer((five_corpus.run / "tokenizer.model").read_bytes())
    n_words = len(" ".join(TARGET).split())
    n_pieces = sum(map(len, tokenizer.encode_all(TARGET)))
    cut, _source, target, _written = log[-4:]
    assert cut == f"the text gives {len(tokenizer)} pieces at most: tokenizer.vocab_size=600 was cut"
    # Dev is the same text as train.
    per_word = f"on dev {n_pieces / n_words:.2f} pieces per word"
    assert target == f"target: {len(tokenizer)} pieces in the vocabulary; {per_word}"


def test_each_side_may_have_its_own_tokenizer(five_corpus: FiveCorpus) -> None:
    settings = "tokenizer.joint=false model.tied_embeddings=none"
    done = run_in(five_corpus.home, f"tokenize five.yaml {settings} --show '我 Beijing'")
    assert not (five_corpus.run / "tokenizer.model").exists()
    source = Tokenizer((five_corpus.run / "tokenizer.src.model").read_bytes())
    target = Tokenizer((five_corpus.run / "tokenizer.tgt.model").read_bytes())
    # Each has the words of its side; the pieces that are shown are of the source.
    assert "▁学校" in source.pieces(source.encode("学校"))
    assert "▁Beijing" in target.pieces(target.encode("Beijing"))
    pieces = source.pieces(source.encode("我 Beijing"))
    assert "▁Beijing" not in pieces
    result = out_lines(done)
    assert result == [" ".join(pieces)]


def test_tokenize_is_quiet_and_imports_no_torch(five_corpus: FiveCorpus) -> None:
    done = run_nmt("tokenize", five_corpus.config, "-q", env={"PYTHONPROFILEIMPORTTIME": "1"})
    for line in err_lines(done):
        assert line.startswith("import time:"), "-q prints nothing"
        assert line.rpartition("|")[2].strip() != "torch"


UNUSABLE = {  # settings -> part of the error message
    "data.train.source=none.zh": "none.zh: No such file",
    "data.train.source=empty data.train.target=empty": "empty is empty",
    "data.train.source=[train.zh,short.en]": "short.en has 9 lines but",
}


@pytest.mark.parametrize("settings", UNUSABLE)
def test_an_unusable_corpus_is_refused_before_anything_is_written(five_corpus: FiveCorpus, settings: str) -> None:
    (five_corpus.home / "short.en").write_text("a\nb\nc\nd\n")
    (five_corpus.home / "empty").write_text("")
    before = file_bytes(five_corpus.home)
    refused(five_corpus.home, f"tokenize five.yaml {settings}", UNUSABLE[settings])
    assert file_bytes(five_corpus.home) == before


def test_a_training_without_its_test_set_is_refused_before_anything_is_written(five_corpus: FiveCorpus) -> None:
    before = file_bytes(five_corpus.home)
    stderr = refused(five_corpus.home, "train five.yaml data.test.source=none.zh", "cannot read")
    assert f"hint: check the path; it is relative to {five_corpus.home}" in stderr
    assert file_bytes(five_corpus.home) == before
