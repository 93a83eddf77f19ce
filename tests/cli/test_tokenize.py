"""`nmt tokenize`."""

from conftest import TARGET, FiveCorpus, err_lines, one_clear_error, out_lines, run_nmt

from nmt.text.tokenizer import Tokenizer


def test_tokenize_writes_a_tokenizer_and_prints_statistics(five_corpus: FiveCorpus) -> None:
    texts = ["我 昨天 买 了 茶 。", "tea  or €"]
    done = run_nmt("tokenize", five_corpus.config, "--show", texts[0], "--show", texts[1], cwd=five_corpus.home)

    tokenizer = Tokenizer((five_corpus.run / "tokenizer.model").read_bytes())
    shown = [line.split(" ") for line in out_lines(done)]
    assert shown == [tokenizer.pieces(tokenizer.encode(text)) for text in texts]
    assert "▁昨天" in shown[0]
    assert shown[1][-3:] == ["<0xE2>", "<0x82>", "<0xAC>"], "characters that are not in the corpus are spelled in bytes"

    log = err_lines(done)
    assert f"the text gives {len(tokenizer)} pieces at most: tokenizer.vocab_size=600 was cut" in log
    n_words = sum(len(line.split()) for line in TARGET)
    n_pieces = sum(map(len, tokenizer.encode_all(TARGET)))
    target = f"target: {len(tokenizer)} pieces in the vocabulary; on dev {n_pieces / n_words:.2f} pieces per word"
    assert target in log
    assert any(line.startswith(f"source: {len(tokenizer)} pieces") for line in log)
    assert f"written to {five_corpus.run}" in log


def test_tokenize_one_per_side_quietly_without_torch(five_corpus: FiveCorpus) -> None:
    env, apart = {"PYTHONPROFILEIMPORTTIME": "1"}, ["tokenizer.joint=false", "model.tied_embeddings=none"]
    done = run_nmt("tokenize", five_corpus.config, *apart, "-q", "--show", "我 Beijing", env=env)
    assert not (five_corpus.run / "tokenizer.model").exists()
    files = [five_corpus.run / f"tokenizer.{side}.model" for side in ("src", "tgt")]
    source, target = (Tokenizer(file.read_bytes()) for file in files)
    assert len(source.encode("学校")) < len(target.encode("学校")), "each has the words of its side"
    assert len(target.encode("Beijing")) < len(source.encode("Beijing"))
    assert out_lines(done) == [" ".join(source.pieces(source.encode("我 Beijing")))]
    imports = [line for line in err_lines(done) if line.startswith("import time:")]
    assert imports == err_lines(done), "-q prints nothing"
    assert not any(line.split("|")[-1].strip() == "torch" for line in imports)


def test_an_unusable_corpus_is_refused_before_anything_is_written(five_corpus: FiveCorpus) -> None:
    home = five_corpus.home
    (home / "short.en").write_text("".join(f"{line}\n" for line in TARGET[:4]))
    (home / "empty").write_text("")
    before = sorted(home.rglob("*"))
    for changes, fragments in (
        (["source=none.zh"], ["cannot read", "none.zh: No such file"]),
        (["source=empty", "target=empty"], ["empty is empty"]),
        (["source=[train.zh, short.en]"], ["train.zh + ", "short.en has 9 lines but", "train.en has 5"]),
    ):
        settings = [f"data.train.{change}" for change in changes]
        one_clear_error(run_nmt("tokenize", five_corpus.config, *settings), 2, *fragments)
    no_test = run_nmt("train", five_corpus.config, "data.test.source=none.zh")
    stderr = one_clear_error(no_test, 2, "cannot read", "none.zh")
    assert f"hint: check the path; it is relative to data.root, {home}" in stderr
    assert sorted(home.rglob("*")) == before, "everything is checked before anything is written"
