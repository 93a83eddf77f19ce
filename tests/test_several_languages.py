"""One model of several languages: tags, corpora, temperature, training, and every command that chooses a direction."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import FiveRun, err_lines, one_clear_error, out_lines, run_nmt
from small_run import SEVERAL, TRAIN, config_of, run_training

from nmt.config import TokenizerSettings
from nmt.errors import ConfigError, InputError
from nmt.run.directory import RunDirectory
from nmt.text import EOS
from nmt.text.lines import Pair
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.tokenizer_training import train_tokenizer
from nmt.train import session
from nmt.train.corpora import mixture_of, training_corpora
from nmt.train.encoding import drop_lengths, train_tokenizers
from nmt.train.preparation import read_corpus

WORDS = ["ba", "de", "fi", "go"]
LINES = [" ".join(words) for n in (1, 2, 3, 4) for words in itertools.product(WORDS, repeat=n)]
SIDES = {"src": LINES, "up": [line.upper() for line in LINES], "back": [" ".join(line.split()[::-1]) for line in LINES]}
DIRECTIONS = ["src-up", "src-back"]  # in capitals; word by word from the end
HOSTILE = ["ba >>up<< de", ">>back<< ba", ">>up<<>>back<<ba", ">>xx<<", "<s> </s>", " ba  de ", ""]


def corpora(name: str) -> list[dict[str, str]]:
    return [{"source": f"{name}.src", "target": f"{name}.{one[4:]}", "languages": one} for one in DIRECTIONS]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("several")
    for name, step in (("train", 1), ("dev", 25), ("test", 21)):
        for side, lines in SIDES.items():
            (home / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines[::step]))
    sizes = {"d_model": 32, "d_ff": 64, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
    training = {**TRAIN, "batch_tokens": 600, "max_steps": 300, "validate_every": 300, "lr": 2e-2, "warmup": 30}
    data = {"root": str(home), **{name: corpora(name) for name in ("train", "dev", "test")}}
    tokenizer, model = {"vocab_size": 300, "type": "bpe"}, {**sizes, "positions": "rotary"}
    run_training(config_of(home, data=data, tokenizer=tokenizer, model=model, train=training))
    return home / "run"


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    text = [line for side in SIDES.values() for line in side]
    model = train_tokenizer(text, TokenizerSettings(vocab_size=320, type="bpe"), [">>up<<", ">>back<<"]).model
    return Tokenizers.from_models(model, model, nfkc_source=False)


@pytest.mark.parametrize("text", [*HOSTILE, "ba de"])
def test_a_tagged_source_differs_from_the_text_only_by_its_tag(tokenizers: Tokenizers, text: str) -> None:
    source, target = tokenizers
    plain, tags = target.encode(text), target.ids([">>up<<", ">>back<<"])
    assert target.decode(plain) == text
    assert {*plain}.isdisjoint(tags), "no text contains a tag"
    for tag, languages in zip(tags, ("src-up", "xx-back"), strict=True):
        chosen = replace(source, target_tag=languages[languages.index("-") + 1 :])
        tagged = Pair(1, text, "", languages).tagged_source
        for tokens in (source.encode(tagged), *source.encode_all([tagged]), chosen.encode(text or "x")):
            assert tokens[0] == tag
        assert source.encode(tagged)[1:] == plain
        assert chosen.encode(text) == ([tag, *plain] if text else [])


def test_without_a_chosen_language_a_text_without_a_tag_is_refused(tokenizers: Tokenizers) -> None:
    for text in ("ba", ">>xx<<ba", " >>up<<ba"):
        with pytest.raises(InputError, match="translates into up, back, and none of them was chosen"):
            tokenizers.source.encode(text)


def test_a_symbol_that_looks_like_a_tag_is_a_symbol() -> None:
    model = train_tokenizer(LINES, TokenizerSettings(vocab_size=300, type="bpe", symbols=">>up<<")).model
    assert Tokenizer(model, target_tag="").targets == []
    assert Tokenizer(model, target_tag="").encode("ba") == Tokenizer(model).encode("ba")


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0, 1000.0])
def test_the_share_of_a_corpus_is_its_size_to_the_power_of_1_over_temperature(corpus: Path, temperature: float) -> None:
    config = config_of(corpus, **{**SEVERAL, "data__temperature": temperature})
    train = read_corpus(config).train
    pairs, _ = drop_lengths(config, train, train_tokenizers(config, train))
    mixture = mixture_of(config, pairs)
    if temperature == 1:
        assert mixture is None, "each pair once"
        return
    assert mixture is not None
    assert mixture.n_drawn[0] == mixture.sizes[0] == 60, "the first corpus is read once an epoch"
    for size, n in zip(mixture.sizes, mixture.n_drawn, strict=True):
        assert abs(n - 60 * (size / 60) ** (1 / temperature)) <= 0.5
    drawn = mixture.pairs(np.arange(mixture.n_pairs), epoch=3, seed=1)
    counts = np.bincount(np.searchsorted(np.cumsum(mixture.sizes), drawn, side="right"))
    assert counts.tolist() == mixture.n_drawn


def test_each_pair_knows_its_languages_and_gets_their_tag(corpus: Path) -> None:
    config = config_of(corpus, **SEVERAL)
    found = read_corpus(config)
    tokenizers = train_tokenizers(config, found.train)
    pairs, (source, target) = drop_lengths(config, found.train, tokenizers)
    assert [*training_corpora(config)] == ["train.zh-en", "train.en-zh", "train.en-zh.2"]
    for i, pair in enumerate(pairs):
        assert pair.languages == ("zh-en" if pair.line <= 60 else "en-zh")
        assert tokenizers.source.pieces(source[i][:1]) == [">>en<<" if pair.line <= 60 else ">>zh<<"]
        assert tokenizers.source.decode(source[i]) == pair.source, "a tag is no text"
        assert min(target[i]) > EOS
    assert {pair.languages for pair in found.dev} == {"zh-en", "en-zh"}


def test_a_pair_is_repeated_only_within_a_direction(corpus: Path) -> None:
    for side in ("zh", "en"):
        (corpus / f"more.{side}").write_text("OK\nOK\n杯\n" if side == "zh" else "OK\nOK\ncup\n")
    both = [{"source": "more.zh", "target": "more.en", "languages": one} for one in ("zh-en", "zh-fr")]
    found = read_corpus(config_of(corpus, **{**SEVERAL, "data__train": both, "data__dev": SEVERAL["data__dev"][:1]}))
    kept = [(pair.line, pair.languages) for pair in found.train]
    assert kept == [(1, "zh-en"), (3, "zh-en"), (4, "zh-fr"), (6, "zh-fr")]


def test_a_resumed_run_refuses_corpora_in_another_order(corpus: Path) -> None:
    run_training(config_of(corpus, **SEVERAL))
    first, *others = SEVERAL["data__train"]
    with pytest.raises(ConfigError, match=r"data\.train\.0\.languages was zh-en, is en-zh"):
        session.prepare(config_of(corpus, **{**SEVERAL, "data__train": [*others, first]}))


def test_fine_tuning_needs_a_tokenizer_with_all_tags(corpus: Path) -> None:
    base = config_of(corpus, "base", train__max_steps=1, train__validate_every=1)
    run_training(base)
    with pytest.raises(ConfigError, match="the tokenizer has no tag of en, zh"):
        session.prepare(config_of(corpus, **SEVERAL, train__init_from=base.run))


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_a_tag_chooses_what_the_model_does_with_a_text(run: Path, engine: str) -> None:
    for languages, side in (("src-up", "up"), ("back", "back")):
        done = run_nmt("translate", "-m", run, "-l", languages, "--engine", engine, input=b"ba de fi\ngo ba\n")
        expected = [SIDES[side][LINES.index(line)] for line in ("ba de fi", "go ba")]
        assert out_lines(done) == expected


def test_a_missing_or_unknown_direction_is_one_clear_line(run: Path, five_run: FiveRun) -> None:
    for command in (["translate", "ba"], ["align"], ["explain", "ba", "--json"]):
        assert "-l src-up" in one_clear_error(run_nmt(*command, "-m", run), 2, "translates src-up, src-back")
    one_clear_error(run_nmt("check", run / "config.yaml"), 2, "translates src-up, src-back")
    unknown = run_nmt("translate", "ba", "-m", run, "-l", "xx")
    assert "it translates src-up, src-back" in one_clear_error(unknown, 2, "does not translate xx")
    one_clear_error(run_nmt("translate", "ba", "-m", run, "-l", "back-up"), 2, "does not translate back-up")
    single = run_nmt("translate", "ba", "-m", five_run.run, "-l", "en")
    assert "leave out -l" in one_clear_error(single, 2, "translates from zh to en only")
    one_clear_error(run_nmt("compare", run, run), 2, "translates in several directions")
    one_clear_error(run_nmt("export", "-m", run, "--to", "argos", "-o", "x.argosmodel"), 2, "Argos Translate has no")


def test_validation_and_eval_score_each_direction(run: Path) -> None:
    (validation,) = [line for line in RunDirectory(run).read_metrics() if "dev_bleu" in line]
    of_each = validation["dev_bleu_by_direction"]
    assert [*of_each] == DIRECTIONS
    assert validation["dev_bleu"] == pytest.approx(sum(of_each.values()) / 2)
    assert min(of_each.values()) > 90
    lines = out_lines(run_nmt("eval", "-m", run, "--beam", 1))
    names, *rows = [line.split() for line in lines[-4:]]
    assert names == ["direction", "BLEU", "chrF2", "TER"]
    assert [row[0] for row in rows] == [*DIRECTIONS, "mean"]
    up, back, mean = (float(row[1]) for row in rows)
    assert mean == pytest.approx((up + back) / 2, abs=0.01)
    (line,) = out_lines(run_nmt("eval", "-m", run, "--json"))
    assert [*json.loads(line)["directions"]] == DIRECTIONS
    (line,) = out_lines(run_nmt("eval", "-m", run, "--json", "-l", "back"))
    assert json.loads(line)["n_lines"] == len(LINES[::21])


def test_info_and_an_export_name_the_languages(run: Path, tmp_path: Path) -> None:
    assert "languages: [src-up, src-back]" in out_lines(run_nmt("info", run / "model.safetensors"))
    err_lines(run_nmt("export", "-m", run, "--to", "ctranslate2", "-o", tmp_path / "all"))
    err_lines(run_nmt("export", "-m", run, "--to", "ctranslate2", "-o", tmp_path / "one", "-l", "src-back"))
    assert out_lines(run_nmt("translate", "ba de", "-m", tmp_path / "all", "-l", "up")) == ["BA DE"]
    assert out_lines(run_nmt("translate", "ba de", "-m", tmp_path / "one")) == ["de ba"]


def test_check_examines_the_corpora_of_a_direction(run: Path) -> None:
    found = run_nmt("check", run / "config.yaml", "-l", "back", "--json")
    sizes = {one["name"]: one["n_source"] for one in json.loads(found.stdout)["corpora"]}
    assert sizes == {"train": len(LINES), "dev": len(LINES[::25]), "test": len(LINES[::21])}
