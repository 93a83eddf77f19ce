"""One model of several languages: tags, corpora, temperature, training, and every command that chooses a direction."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import FiveRun, err_lines, out_lines, refused, run_in
from small_run import SEVERAL, SIZES, TRAIN, config_of, corpus_of, run_training, write_lines

from nmt.cli.compare import only_direction
from nmt.config import TokenizerSettings, load_config
from nmt.errors import ConfigError, InputError
from nmt.run.directory import RunDirectory
from nmt.text import EOS
from nmt.text.lines import Pair
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.tokenizer_training import train_tokenizer
from nmt.train import session
from nmt.train.corpora import mixture_of
from nmt.train.encoding import drop_lengths, train_tokenizers
from nmt.train.preparation import read_corpus


def reversed_words(line: str) -> str:
    return " ".join(reversed(line.split()))


WORDS = ["ba", "de", "fi", "go"]
LINES: list[str] = []  # all lines of one to four words
for n_words in range(1, 5):
    LINES += map(" ".join, itertools.product(WORDS, repeat=n_words))
# The two target languages: capitals, and words from the end.
SIDES = {"src": LINES}
SIDES["up"] = [line.upper() for line in LINES]
SIDES["back"] = [reversed_words(line) for line in LINES]
DIRECTIONS = ["src-up", "src-back"]
TAGS = [">>up<<", ">>back<<"]
# Texts that contain what looks like a tag, or nothing.
HOSTILE = ["ba >>up<< de", ">>back<< ba", ">>up<<>>back<<ba", ">>xx<<", "<s> </s>", " ba  de ", ""]


def corpora(name: str) -> list[dict[str, str]]:
    return [corpus_of(name, "src", "up"), corpus_of(name, "src", "back")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("several")
    for side, lines in SIDES.items():
        write_lines(home / f"train.{side}", lines)
        write_lines(home / f"dev.{side}", lines[::25])
        write_lines(home / f"test.{side}", lines[::21])
    data: dict[str, Any] = {name: corpora(name) for name in ("train", "dev", "test")}
    data["root"] = str(home)
    tokenizer = {"vocab_size": 300, "type": "bpe"}
    model = SIZES | {"d_model": 32, "d_ff": 64, "dropout": 0.0, "positions": "rotary"}
    training = TRAIN | {"batch_tokens": 600, "max_steps": 300, "validate_every": 300, "lr": 2e-2, "warmup": 30}
    run_training(config_of(home, data=data, tokenizer=tokenizer, model=model, train=training))
    return home / "run"


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    text = list(itertools.chain(*SIDES.values()))
    model = train_tokenizer(text, TokenizerSettings(vocab_size=320, type="bpe"), TAGS)
    return Tokenizers.from_models(model, model, nfkc_source=False)


every_text = pytest.mark.parametrize("text", [*HOSTILE, "ba de"])
every_language = pytest.mark.parametrize("language", ["up", "back"])


@every_text
def test_no_text_contains_a_tag(tokenizers: Tokenizers, text: str) -> None:
    tokens = tokenizers.target.encode(text)
    assert set(tokens).isdisjoint(tokenizers.target.ids(TAGS))
    assert tokenizers.target.decode(tokens) == text


@every_text
@every_language
def test_the_tokens_of_a_tagged_pair_begin_with_its_tag(tokenizers: Tokenizers, text: str, language: str) -> None:
    (tag,) = tokenizers.target.ids([f">>{language}<<"])
    expected = [tag, *tokenizers.target.encode(text)]
    tagged = Pair(1, text, "", f"src-{language}").tagged_source
    assert tokenizers.source.encode(tagged) == expected
    assert tokenizers.source.encode_all([tagged]) == [expected]


@every_text
@every_language
def test_a_chosen_language_puts_its_tag_before_a_text(tokenizers: Tokenizers, text: str, language: str) -> None:
    (tag,) = tokenizers.target.ids([f">>{language}<<"])
    chosen = replace(tokenizers.source, target_tag=language)
    expected = [tag, *tokenizers.target.encode(text)] if text else []
    assert chosen.encode(text) == expected


@pytest.mark.parametrize("text", ["ba", ">>xx<<ba", " >>up<<ba"])
def test_without_a_chosen_language_a_text_without_a_tag_is_refused(tokenizers: Tokenizers, text: str) -> None:
    with pytest.raises(InputError, match="translates into up, back, and none of them was chosen"):
        tokenizers.source.encode(text)


def test_a_symbol_that_looks_like_a_tag_is_a_symbol() -> None:
    model = train_tokenizer(LINES, TokenizerSettings(vocab_size=300, type="bpe", symbols=">>up<<"))
    tokenizer = Tokenizer(model, target_tag="")
    assert tokenizer.targets == []
    result = tokenizer.encode("ba")
    assert result == Tokenizer(model).encode("ba")


# --- corpora


def mixture(corpus: Path, temperature: float) -> Any:
    config = config_of(corpus, **SEVERAL | {"data__temperature": temperature})
    train = read_corpus(config).train
    pairs, _ = drop_lengths(config, train, train_tokenizers(config, train))
    return mixture_of(config, pairs)


def test_with_temperature_1_each_pair_is_read_once(corpus: Path) -> None:
    assert mixture(corpus, temperature=1.0) is None


@pytest.mark.parametrize("temperature", [2.0, 5.0, 1000.0])
def test_the_share_of_a_corpus_is_its_size_to_the_power_of_1_over_temperature(corpus: Path, temperature: float) -> None:
    mixed = mixture(corpus, temperature)
    assert mixed.sizes[0] == 60
    assert mixed.n_drawn[0] == 60, "the first corpus is read once an epoch"
    for size, n in zip(mixed.sizes, mixed.n_drawn, strict=True):
        share = (size / 60) ** (1 / temperature)
        assert n == pytest.approx(60 * share, abs=0.5)


def test_each_pair_knows_its_languages_and_gets_their_tag(corpus: Path) -> None:
    config = config_of(corpus, **SEVERAL)
    train = read_corpus(config).train
    tokenizers = train_tokenizers(config, train)
    tokenizer = tokenizers.source
    pairs, (source, target) = drop_lengths(config, train, tokenizers)
    for i, pair in enumerate(pairs):
        languages, tag = ("zh-en", ">>en<<") if pair.line <= 60 else ("en-zh", ">>zh<<")
        assert pair.languages == languages
        assert tokenizer.pieces(source[i])[0] == tag
        assert tokenizer.decode(source[i]) == pair.source, "a tag is no text"
        assert min(target[i]) > EOS
        assert tokenizers.target.decode(target[i]) == pair.target, "a target has no tag"


def test_a_pair_is_repeated_only_within_a_direction(corpus: Path) -> None:
    (corpus / "more.zh").write_text("OK\nOK\n杯\n")
    (corpus / "more.en").write_text("OK\nOK\ncup\n")
    files = {"source": "more.zh", "target": "more.en"}
    both = [{**files, "languages": "zh-en"}, {**files, "languages": "zh-fr"}]
    dev = SEVERAL["data__dev"][:1]
    data = read_corpus(config_of(corpus, data__train=both, data__dev=dev))
    kept = [(pair.line, pair.languages) for pair in data.train]
    assert kept == [(1, "zh-en"), (3, "zh-en"), (4, "zh-fr"), (6, "zh-fr")]


def test_a_resumed_run_refuses_corpora_in_another_order(corpus: Path) -> None:
    run_training(config_of(corpus, **SEVERAL))
    # The numbers of a corpus' pairs depend on the order.
    first, *others = SEVERAL["data__train"]
    changed = SEVERAL | {"data__train": [*others, first]}
    with pytest.raises(ConfigError, match=r"data\.train\.0\.languages was zh-en, is en-zh"):
        session.prepare(config_of(corpus, **changed))


def test_fine_tuning_needs_a_tokenizer_with_all_tags(corpus: Path) -> None:
    base = config_of(corpus, "base", train__max_steps=1, train__validate_every=1)
    run_training(base)
    with pytest.raises(ConfigError, match="the tokenizer has no tag of en, zh"):
        session.prepare(config_of(corpus, **SEVERAL, train__init_from=base.run))


# --- commands


# They run in the folder of the run, which is also the model.


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_a_tag_chooses_what_the_model_does_with_a_text(run: Path, engine: str) -> None:
    translate = f"translate 'ba de fi' -m . --engine {engine}"
    result = out_lines(run_in(run, f"{translate} -l src-up"))
    assert result == ["BA DE FI"]
    result = out_lines(run_in(run, f"{translate} -l back"))
    assert result == ["fi de ba"]


def test_pieces_are_shown_without_a_direction(run: Path) -> None:
    assert len(out_lines(run_in(run, "tokenize config.yaml --show ba"))) == 1


@pytest.mark.parametrize("command", ["translate ba", "align --src x --ref x", "explain ba --json"])
def test_a_missing_direction_is_one_clear_line(run: Path, command: str) -> None:
    assert "-l src-up" in refused(run, f"{command} -m .", "translates src-up, src-back")


def test_a_missing_direction_of_a_config_is_one_clear_line(run: Path) -> None:
    refused(run, "check config.yaml", "translates src-up, src-back")


@pytest.mark.parametrize("languages", ["xx", "back-up"])
def test_an_unknown_direction_is_one_clear_line(run: Path, languages: str) -> None:
    stderr = refused(run, f"translate ba -m . -l {languages}", f"does not translate {languages}")
    assert "it translates src-up, src-back" in stderr


def test_a_model_of_one_direction_has_none_to_choose(five_run: FiveRun) -> None:
    assert "leave out -l" in refused(five_run.run, "translate ba -m . -l en", "translates from zh to en only")


def test_models_of_several_directions_are_not_compared(run: Path) -> None:
    refused(run, "compare . .", "translates in several directions")
    assert only_direction([load_config(Path(__file__).parents[1] / "configs/multi30k-many-de-en.yaml")]) == "de-en"


def test_argos_has_no_models_of_several_directions(run: Path) -> None:
    refused(run, "export -m . --to argos -o x.argosmodel", "Argos Translate has no")


def test_validation_scores_each_direction(run: Path) -> None:
    metrics = RunDirectory(run).read_metrics()
    (validation,) = [line for line in metrics if "dev_bleu" in line]
    by_direction = validation["dev_bleu_by_direction"]
    up, back = by_direction.values()
    assert list(by_direction) == DIRECTIONS
    assert min(up, back) > 90
    assert validation["dev_bleu"] == pytest.approx((up + back) / 2)


def test_eval_shows_the_scores_of_each_direction_below_its_name(run: Path) -> None:
    lines = out_lines(run_in(run, "eval -m . --beam 1"))
    names = [line.split()[0] for line in lines]
    metrics = ["BLEU", "chrF2", "TER", "engine", "perplexity"]
    first, second = DIRECTIONS
    assert names == [f"{first}:", *metrics, f"{second}:", *metrics]


def test_eval_scores_a_chosen_direction(run: Path) -> None:
    (line,) = out_lines(run_in(run, "eval -m . --json -l back"))
    scores = json.loads(line)
    assert scores["n_lines"] == len(LINES[::21])


def test_info_names_the_languages(run: Path) -> None:
    assert "languages: [src-up, src-back]" in out_lines(run_in(run, "info model.safetensors"))


@pytest.mark.parametrize(("exported", "chosen", "result"), [("", "-l up", "BA DE"), ("-l src-back", "", "de ba")])
def test_an_export_is_of_all_languages_or_of_one(
    run: Path, tmp_path: Path, exported: str, chosen: str, result: str
) -> None:
    err_lines(run_in(run, f"export -m . --to ctranslate2 -o {tmp_path}/out {exported}"))
    assert out_lines(run_in(tmp_path, f"translate 'ba de' -m out {chosen}")) == [result]


def test_check_examines_the_corpora_of_a_direction(run: Path) -> None:
    done = run_in(run, "check config.yaml -l back --json")
    corpora = json.loads(done.stdout)["corpora"]
    result = [corpus["name"] for corpus in corpora]
    assert result == ["train", "dev", "test"]
    for corpus, stride in zip(corpora, (1, 25, 21), strict=True):
        assert corpus["n_source"] == len(LINES[::stride])
