"""Settings that the user did not set are chosen for the corpus and the machine; no others change."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.config import Config, check_config, settings, values
from nmt.corpus.split import Facts
from nmt.decode.options import SearchOptions
from nmt.errors import ConfigError
from nmt.train.plan import (
    CorpusSize,
    Plan,
    data_text,
    finetuning_text,
    fit_machine,
    fit_sizes,
    fit_validation,
    plan_text,
    size_of,
)
from nmt.train.plan_decoding import MARGIN, PieceCounts, fit_limit, fit_sentences

FITTED: dict[str, float] = {
    "tokenizer.vocab_size": 5000,
    "model.d_model": 96,
    "model.n_heads": 6,
    "model.d_ff": 200,
    "model.dropout": 0.25,
    "model.n_encoder_layers": 5,
    "model.n_decoder_layers": 1,
    "train.lr": 4e-4,
    "train.batch_tokens": 3000,
    "train.warmup": 17,
    "train.max_epochs": 3,
}


def config_of(**sections: Any) -> Config:
    data = {"train": {"source": "a", "target": "b"}}
    return check_config({"run": "r", "data": data, **sections}, {}, "test")


def fitted_values(config: Config) -> dict[str, str]:
    return {key: value for key, value in values(config) if key in FITTED}


def corpus_size(n_pairs: int) -> CorpusSize:
    return CorpusSize(n_pairs, n_words=10 * n_pairs, n_characters=80)


def facts_of(n_pairs: int, n_with_code: int = 0) -> Facts:
    return Facts(n_pairs, 100, 100, 0, 0, n_words=10 * n_pairs, n_characters=80, n_with_code=n_with_code)


def seconds(plan: Plan) -> tuple[float, int]:
    """Stand in for a measurement: seconds of an epoch, which grow with the number of weights, and bytes of memory."""
    n_weights = plan.model.d_model**2 * plan.model.n_layers
    return n_weights / 1000, 10**9


def init_config(
    n_pairs: int, languages: tuple[str, str], minutes: float | None = None, root: str = "", n_with_code: int = 0
) -> Config:
    """Return the config that `nmt init` writes."""
    facts = facts_of(n_pairs, n_with_code)
    plan = fit_machine(size_of(facts, languages), minutes, seconds)
    text = data_text(facts, "runs/x", root, languages) + plan_text(plan, facts)
    assert "so that each piece is frequent enough" in text
    return check_config(yaml.safe_load(text), {}, "test")


def finetuning_config(start: Config, minutes: float | None = None, new_sources: Collection[str] = ()) -> Config:
    """Return the config that `nmt init --from` writes."""
    text = data_text(facts_of(500), "runs/x", "new", ("de", "en"))
    text += finetuning_text("runs/old", start, "en", minutes, new_sources)
    return check_config(yaml.safe_load(text), {}, "test")


def test_a_fine_tuning_mixes_the_text_of_the_run_in(tmp_path: Path) -> None:
    for name in ("train.de", "train.en"):
        (tmp_path / name).write_text("a")
    start = init_config(20_000, ("de", "en"), root=str(tmp_path))
    config = finetuning_config(start, 3)
    [general] = config.data.mix.values()
    result = (general.root, general.source, general.target)
    assert result == (str(tmp_path), ("train.de",), ("train.en",))
    assert general.weight == 0.75
    assert (config.train.init_from, config.train.max_minutes) == ("runs/old", 3)


def test_a_second_fine_tuning_mixes_what_the_first_one_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    corpus = {"root": str(tmp_path), "source": "a", "target": "a"}
    first = config_of(data={"train": corpus, "mix": {"general1": {**corpus, "weight": 0.75}}})
    weights = [files.weight for files in finetuning_config(first).data.mix.values()]
    # In the first fine-tuning, its own pairs had a share of 0.25, and general1 had 0.75. Each is multiplied by 0.75.
    assert weights == [0.188, 0.562]


def test_a_model_of_several_languages_goes_on_in_one_direction() -> None:
    train = [{"source": "a", "target": "b", "languages": code} for code in ("de-en", "en-de")]
    config = finetuning_config(config_of(data={"train": train, "dev": train}))
    assert (config.data.target_tag, config.data.mix) == ("en", {})


def test_a_training_text_that_is_not_here_is_not_mixed_in(caplog: pytest.LogCaptureFixture) -> None:
    train = [{"source": "a", "target": "b", "languages": "de-en"}]
    config = finetuning_config(config_of(data={"train": train, "dev": train}))
    assert (config.data.target_tag, config.data.mix) == ("en", {})
    assert "the training text of runs/old is not mixed in: it is missing" in caplog.text


def test_a_training_text_that_the_new_text_contains_is_not_mixed_in(tmp_path: Path) -> None:
    for name in ("train.de", "train.en"):
        (tmp_path / name).write_text("a\nb\nc\nd\n")
    start = init_config(20_000, ("de", "en"), root=str(tmp_path))
    config = finetuning_config(start, new_sources="abcdef")
    assert not config.data.mix


def test_a_fine_tuning_leaves_tokenizer_and_model_to_the_run() -> None:
    config = finetuning_config(init_config(20_000, ("de", "en")))
    assert not config.model.model_fields_set | config.tokenizer.model_fields_set
    assert "placeholders" not in config.data.model_fields_set


def test_a_wide_model_is_fine_tuned_with_a_low_rate() -> None:
    start = config_of(model={"d_model": 512, "n_heads": 8})
    assert finetuning_config(start).train.lr < finetuning_config(init_config(20_000, ("de", "en"))).train.lr


@pytest.mark.parametrize(("n_with_code", "expected"), [(0, False), (199, False), (200, True)])
def test_placeholders_are_learned_where_the_text_has_them(n_with_code: int, expected: bool) -> None:
    config = init_config(20_000, ("de", "en"), n_with_code=n_with_code)
    assert config.data.placeholders is expected


@pytest.mark.parametrize("n_pairs", [1, 499, 500, 18_000, 10_000_000])
@pytest.mark.parametrize("joint", [True, False])
def test_what_is_left_open_is_what_init_chooses(n_pairs: int, joint: bool) -> None:
    expected = init_config(n_pairs, ("de" if joint else "zh", "en"))
    tied = {"tied_embeddings": expected.model.tied_embeddings}
    config = config_of(tokenizer={"joint": joint}, model=tied)
    fitted = fit_sizes(config, corpus_size(n_pairs))
    assert fitted_values(fitted) == fitted_values(expected)


def test_in_a_finished_config_all_is_set() -> None:
    fitted = fit_sizes(config_of(), corpus_size(18_000))
    # Read back, it does not tell what was chosen from what was set.
    finished = check_config(fitted.model_dump(), {}, "test")
    assert fit_sizes(finished, corpus_size(7)) == fitted


def test_adamw_has_a_lower_rate_than_muon() -> None:
    adamw = fit_sizes(config_of(train={"optimizer": "adamw"}), corpus_size(5000))
    muon = fit_sizes(config_of(), corpus_size(5000))
    assert adamw.train.lr < muon.train.lr


SETTINGS = st.sets(st.sampled_from(sorted(FITTED)))


@hypothesis_settings(max_examples=60)
@given(SETTINGS, st.sampled_from([5, 5000, 50_000, 500_000, 5_000_000]))
def test_what_was_set_stays_whatever_the_corpus(keys: set[str], n_pairs: int) -> None:
    if "model.n_heads" in keys:  # 6 heads do not divide the width of every size
        keys = keys | {"model.d_model"}
    tree: dict[str, Any] = {}
    for name in keys:
        section, key = name.split(".")
        tree.setdefault(section, {})[key] = FITTED[name]
    config = config_of(**tree)
    fitted = fit_sizes(config, corpus_size(n_pairs))
    # All others are as they would be without these.
    without = fit_sizes(config_of(), corpus_size(n_pairs))
    was_set = {key: str(FITTED[key]) for key in keys}
    result = fitted_values(fitted)
    assert result == fitted_values(without) | was_set
    assert fitted.data == config.data
    assert fitted.decode == config.decode


@pytest.mark.parametrize("limit", [{"max_steps": 7}, {"max_minutes": 0.5}, {"max_epochs": 2}], ids=str)
def test_a_limit_that_was_set_is_the_only_one(limit: dict[str, Any]) -> None:
    train = fit_sizes(config_of(train=limit), corpus_size(50_000)).train
    limits = train.model_dump(include={"max_steps", "max_epochs", "max_minutes"}, exclude_none=True)
    assert limits == limit


def test_patience_alone_is_no_limit() -> None:
    config = fit_sizes(config_of(train={"patience": 3}), corpus_size(50_000))
    assert config.train.max_epochs == 30


def test_every_pair_fits_into_a_batch() -> None:
    data = {"train": {"source": "a", "target": "b"}, "max_length": 600}
    assert fit_sizes(config_of(data=data), corpus_size(50)).train.batch_tokens == 601


def test_what_is_chosen_is_checked_with_what_was_set() -> None:
    with pytest.raises(ConfigError, match=r"d_model \(102\) is not divisible by n_heads \(4\)"):
        fit_sizes(config_of(model={"d_model": 102}), corpus_size(5_000_000))


@pytest.mark.parametrize(("steps", "every"), [(350, 350), (1, 100), (90_000, 4000)])
def test_validations_come_once_an_epoch_within_limits(steps: int, every: int) -> None:
    assert fit_validation(config_of(), steps).train.validate_every == every


def test_three_minutes_pass_between_validations_if_an_epoch_is_shorter() -> None:
    plan = fit_machine(corpus_size(18_000), None, seconds)
    step_s = plan.n_epochs * plan.epoch_s / plan.n_steps
    assert plan.validate_every * step_s == pytest.approx(180, rel=0.01)


def test_an_interval_that_was_set_stays() -> None:
    assert fit_validation(config_of(train={"validate_every": 3}), 350).train.validate_every == 3


def test_the_list_of_settings_says_which_are_fitted() -> None:
    marked = {setting.key for setting in settings() if "[fitted]" in setting.help}
    others = {
        "train.validate_every",
        "decode.max_length_a",
        "decode.max_length_b",
        "decode.whole_lines",
        "decode.abbreviations",
    }
    assert marked == {*FITTED, *others}


def test_more_pairs_get_larger_models_and_fewer_epochs() -> None:
    plans = []
    for n_pairs in (100, 3_000, 18_000, 150_000, 1_000_000, 5_000_000):
        plans.append(fit_machine(corpus_size(n_pairs), None, seconds))
    widths = [plan.model.d_model for plan in plans]
    assert widths == [64, 128, 128, 256, 512, 512]
    vocabularies = [plan.vocab_size for plan in plans]
    assert vocabularies == sorted(vocabularies)
    batches = [plan.batch_tokens for plan in plans]
    assert batches == sorted(batches)
    epochs = [plan.n_epochs for plan in plans]
    assert epochs == sorted(epochs, reverse=True)


def test_much_time_gets_twice_the_usual_epochs() -> None:
    usual = fit_machine(corpus_size(150_000), None, seconds)
    plan = fit_machine(corpus_size(150_000), 10 * usual.expected_minutes, seconds)
    assert plan.model == usual.model
    assert plan.n_epochs == 2 * usual.n_epochs


def test_little_time_gets_a_smaller_model_and_the_epochs_that_fit() -> None:
    usual = fit_machine(corpus_size(150_000), None, seconds)
    minutes = usual.expected_minutes / 100  # a hundredth of the usual time
    plan = fit_machine(corpus_size(150_000), minutes, seconds)
    assert plan.model.d_model < usual.model.d_model
    # Few epochs cannot overfit.
    assert plan.dropout < usual.dropout
    assert usual.joint
    # The logits of a joint vocabulary cost too much time.
    assert not plan.joint
    # A training may be shorter than an epoch.
    plan = fit_machine(corpus_size(150_000), 0.01, seconds)
    assert plan.expected_minutes == pytest.approx(0.01)
    assert plan.n_epochs < 1


@pytest.mark.parametrize("minutes", [None, 0.1, 10.0, 10_000.0])
def test_the_rate_peaks_long_before_the_cooldown(minutes: float | None) -> None:
    plan = fit_machine(corpus_size(150_000), minutes, seconds)
    assert plan.warmup <= max(plan.n_steps / 4, 50)


MINUTES = st.none() | st.floats(0.01, 10_000)
PLACES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)


@hypothesis_settings(max_examples=50)
@given(st.integers(20, 10**8), st.sampled_from(["de", "zh"]), MINUTES, PLACES)
def test_the_config_of_init_is_valid(n_pairs: int, source: str, minutes: float | None, root: str) -> None:
    config = init_config(n_pairs, (source, "en"), minutes, root)
    assert config.data.root == root
    assert config.train.max_minutes == minutes


@pytest.mark.parametrize(("minutes", "max_epochs"), [(None, 45), (8.1, None), (10_000.0, 90)])
def test_epochs_limit_a_training_that_has_time_for_more(minutes: float | None, max_epochs: int | None) -> None:
    assert init_config(18_000, ("zh", "en"), minutes).train.max_epochs == max_epochs


def test_two_scripts_get_a_vocabulary_each() -> None:
    joint = size_of(facts_of(18_000), ("cs", "en"))
    separate = size_of(facts_of(18_000), ("uk", "en"))
    assert joint.joint
    assert not separate.joint
    both = fit_machine(joint, None, seconds)
    result = fit_machine(separate, None, seconds).vocab_size
    assert result == both.vocab_size / 2


def test_a_vocabulary_holds_all_characters_and_bytes() -> None:
    # More characters than usual vocabularies have pieces.
    chinese = CorpusSize(18_000, n_words=180_000, n_characters=5_000, joint=False)
    result = fit_machine(chinese, None, seconds).vocab_size
    assert result > 5_000 + 256


def lengths_of(*pairs: tuple[int, int]) -> PieceCounts:
    """Return the lengths of pairs: pieces of source and target, without EOS."""
    return PieceCounts(*np.array(pairs).T)


def limit_of(*pairs: tuple[int, int], base: Config | None = None, **decode: float) -> Config:
    """Return the config with a limit that is fitted to pairs of these lengths."""
    return fit_limit(config_of(decode=decode), [lengths_of(*pairs)], base)


def longest(config: Config, n_source: int) -> int:
    """Return the most pieces, without EOS, that a translation of so many pieces can have."""
    options = SearchOptions(max_length_a=config.decode.max_length_a, max_length_b=config.decode.max_length_b)
    return options.limit(n_source + 1) - 1


PAIR_LENGTHS = st.tuples(st.integers(0, 200), st.integers(0, 200))


@hypothesis_settings(max_examples=100)
@given(st.lists(PAIR_LENGTHS, min_size=1, max_size=30))
def test_every_training_pair_can_be_written_with_room_to_spare(pairs: list[tuple[int, int]]) -> None:
    config = limit_of(*pairs)
    assert config.decode.max_length_a >= 1.5
    assert config.decode.max_length_b >= 10
    for n_source, n_target in pairs:
        assert longest(config, n_source) >= n_target + MARGIN


def test_coarse_source_pieces_raise_the_slope() -> None:
    # 30 target and 6 source tokens, EOS counted, times 1.5.
    result = limit_of((1, 9), (3, 19)).decode.max_length_a
    assert result == 7.5
    found = limit_of((9, 1), (19, 3)).decode.max_length_a
    assert found == 1.5


def test_of_several_corpora_that_with_the_longest_translations_counts() -> None:
    """A model of several languages has one limit."""
    short = lengths_of((9, 1), (19, 3))
    long = lengths_of((1, 9), (3, 19))
    nothing = np.zeros(0, int)
    without_pairs = PieceCounts(nothing, nothing)
    config = fit_limit(config_of(), [short, without_pairs, long], None)
    assert config.decode.max_length_a == 7.5
    # All of them together have as many pieces on both sides.
    together = limit_of((9, 1), (19, 3), (1, 9), (3, 19))
    assert together.decode.max_length_a == 1.5


def test_one_pair_of_a_hundred_thousand_may_be_longer_than_the_limit() -> None:
    usual = [(10, 10)] * 99_998
    one_long = limit_of(*usual, (3, 199), (10, 10))
    assert one_long.decode.max_length_b == 10
    # The second one counts.
    two_long = limit_of(*usual, (3, 199), (3, 198))
    assert longest(two_long, 3) == 198 + MARGIN


def test_of_fewer_pairs_each_one_counts() -> None:
    usual = [(10, 10)] * 99_000
    config = limit_of(*usual, (3, 199))
    assert longest(config, 3) == 199 + MARGIN


def test_a_limit_that_was_set_is_not_fitted() -> None:
    result = longest(limit_of((1, 100), max_length_a=0.0, max_length_b=7), 50)
    assert result == 6


def test_the_part_of_a_limit_that_was_not_set_is_fitted() -> None:
    config = limit_of((1, 100), max_length_a=2.0)
    assert longest(config, 1) == 100 + MARGIN
    assert limit_of((1, 100), max_length_b=7).decode.max_length_b == 7


def test_the_limit_of_the_model_that_training_starts_from_is_the_least() -> None:
    base = limit_of((1, 80), (10, 90))
    shorter = limit_of((10, 10), base=base)
    longer = limit_of((1, 150), base=base)
    assert shorter.decode == base.decode
    assert longest(longer, 1) >= 150


@pytest.mark.parametrize(("n_several", "whole_lines"), [(10, False), (11, True)])
def test_a_model_of_lines_of_several_sentences_translates_whole_lines(n_several: int, whole_lines: bool) -> None:
    lines = ["A dog runs."] * 100
    lines[:n_several] = ["A dog runs. It is red."] * n_several
    assert fit_sentences(config_of(), lines).decode.whole_lines is whole_lines


def test_whole_lines_that_the_user_has_set_stay() -> None:
    config = config_of(decode={"whole_lines": False})
    assert not fit_sentences(config, ["A dog runs. It is red."]).decode.whole_lines
