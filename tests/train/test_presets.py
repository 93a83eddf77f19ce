"""Presets choose the sizes that the user did not set, by the rules of `nmt init`, and change no others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.config import Config, check_config, load_config, settings, values
from nmt.corpus import init
from nmt.corpus.split import Facts
from nmt.decode.options import SearchOptions
from nmt.errors import ConfigError
from nmt.train.presets import MARGIN, fit_config, fit_limit, fit_validation

FITTED: dict[str, float] = {"tokenizer.vocab_size": 5000, "model.d_model": 96, "model.n_heads": 6, "model.d_ff": 200}
FITTED |= {"model.dropout": 0.25, "model.n_encoder_layers": 5, "model.n_decoder_layers": 1, "train.lr": 4e-4}
FITTED |= {"train.batch_tokens": 3000, "train.warmup": 17, "train.max_epochs": 3}
LIMIT = {"decode.max_length_a", "decode.max_length_b"}


def config_of(tree: dict[str, Any] | None = None) -> Config:
    return check_config({"run": "r", "data": {"train": {"source": "a", "target": "b"}}, **(tree or {})}, {}, "test")


def choices(config: Config) -> dict[str, str]:
    return {key: value for key, value in values(config) if key in FITTED}


def fitted(config: Config, n_pairs: int) -> Config:
    return fit_config(config, n_pairs, n_words=8 * n_pairs, n_characters=80)


@pytest.mark.parametrize("n_pairs", [1, 499, 500, 18_000, 158_000, 10**7])
@pytest.mark.parametrize("joint", [True, False])
def test_what_is_left_open_is_what_init_chooses(tmp_path: Path, n_pairs: int, joint: bool) -> None:
    facts = Facts(n_pairs, 100, 100, 0, 0, 8 * n_pairs, 80, letter_overlap=float(joint))
    chosen = init.plan(facts, None, lambda _: (60.0, 0))
    (tmp_path / "init.yaml").write_text(init.config_text(chosen, "r", "", ("a", "b")))
    expected = load_config(tmp_path / "init.yaml")
    vocabularies = {"tokenizer": {"joint": joint}, "model": {"tied_embeddings": "all" if joint else "decoder"}}
    found = fitted(config_of(vocabularies), n_pairs)
    assert choices(found) == choices(expected)
    assert fitted(check_config(found.model_dump(), {}, "test"), 7) == found  # in a resolved config all is set


def test_adamw_has_a_lower_rate_than_muon() -> None:
    assert fitted(config_of({"train": {"optimizer": "adamw"}}), 5000).train.lr < fitted(config_of(), 5000).train.lr


@hypothesis_settings(max_examples=60)
@given(st.sets(st.sampled_from(sorted(FITTED))), st.sampled_from([5, 5000, 50_000, 500_000, 5_000_000]))
def test_what_was_set_stays_whatever_the_corpus(keys: set[str], n_pairs: int) -> None:
    if "model.n_heads" in keys:  # 6 heads do not divide the width of every preset
        keys = keys | {"model.d_model"}
    tree: dict[str, Any] = {}
    for section, key in (name.split(".") for name in keys):
        tree.setdefault(section, {})[key] = FITTED[f"{section}.{key}"]
    config = config_of(tree)
    found = fitted(config, n_pairs)
    left_open = choices(fitted(config_of(), n_pairs))
    assert choices(found) == left_open | {key: str(FITTED[key]) for key in keys}
    assert (found.data, found.decode) == (config.data, config.decode)


@pytest.mark.parametrize("limit", [{"max_steps": 7}, {"max_minutes": 0.5}, {"max_epochs": 2}, {"patience": 3}], ids=str)
def test_a_limit_that_was_set_is_the_only_one(limit: dict[str, Any]) -> None:
    """Patience alone is no limit."""
    train = fitted(config_of({"train": limit}), 50_000).train
    found = {"max_steps": train.max_steps, "max_minutes": train.max_minutes, "max_epochs": train.max_epochs}
    assert {key: n for key, n in found.items() if n} == ({"max_epochs": 30} if "patience" in limit else limit)


def test_what_is_chosen_is_checked_with_what_was_set() -> None:
    with pytest.raises(ConfigError, match=r"d_model \(102\) is not divisible by n_heads \(4\)"):
        fitted(config_of({"model": {"d_model": 102}}), 5_000_000)


@pytest.mark.parametrize(("steps", "every"), [(1, 100), (100, 100), (350, 350), (4000, 4000), (90_000, 4000)])
def test_validations_come_once_an_epoch_within_limits(steps: int, every: int) -> None:
    assert fit_validation(config_of(), steps).train.validate_every == every
    assert fit_validation(config_of({"train": {"validate_every": 3}}), steps).train.validate_every == 3


def test_the_list_of_settings_says_which_are_fitted() -> None:
    marked = {key for key, _, _, meaning in settings() if "[fitted]" in meaning}
    assert marked == {*FITTED, *LIMIT, "train.validate_every"}


Lengths = list[tuple[int, int]]  # of pairs: pieces of source and target, without EOS


def limit_of(
    lengths: Lengths,
    decode: dict[str, Any] | None = None,
    base: Config | None = None,
    corpora: Sequence[tuple[int, int]] = (),
) -> Config:
    """The config with a limit that is fitted to pairs of these lengths."""
    n_source, n_target = np.array(lengths).T
    return fit_limit(config_of({"decode": decode or {}}), n_source, n_target, corpora or [(0, len(lengths))], base)


def longest(config: Config, n_source: int) -> int:
    """The most pieces, without EOS, that a translation of so many pieces can have."""
    options = SearchOptions(max_length_a=config.decode.max_length_a, max_length_b=config.decode.max_length_b)
    return options.limit(n_source + 1) - 1


LENGTHS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=1, max_size=30)


@hypothesis_settings(max_examples=100)
@given(LENGTHS)
def test_every_training_pair_can_be_written_with_room_to_spare(lengths: Lengths) -> None:
    config = limit_of(lengths)
    for n_source, n_target in lengths:
        assert longest(config, n_source) >= n_target + MARGIN


@hypothesis_settings(max_examples=50)
@given(LENGTHS)
def test_a_fitted_limit_is_never_below_the_default(lengths: Lengths) -> None:
    decode = limit_of(lengths).decode
    assert decode.max_length_a >= 1.5
    assert decode.max_length_b >= 10


def test_coarse_source_pieces_raise_the_slope() -> None:
    assert limit_of([(1, 9), (3, 19)]).decode.max_length_a == 7.5  # 30 target and 6 source tokens, EOS counted
    assert limit_of([(9, 1), (19, 3)]).decode.max_length_a == 1.5


def test_of_several_corpora_that_with_the_longest_translations_counts() -> None:
    """A model of several languages has one limit."""
    lengths = [(9, 1), (19, 3), (1, 9), (3, 19)]
    assert limit_of(lengths, corpora=[(0, 2), (2, 4)]).decode.max_length_a == 7.5
    assert limit_of(lengths, corpora=[(0, 2), (2, 2), (2, 4)]).decode.max_length_a == 7.5  # one has no pair left
    assert limit_of(lengths).decode.max_length_a == 1.5


def test_one_pair_of_a_hundred_thousand_may_be_longer_than_the_limit() -> None:
    usual = [(10, 10)] * 99_998
    one_odd, two_odd = [*usual, (3, 199), (10, 10)], [*usual, (3, 199), (3, 198)]
    assert limit_of(one_odd).decode.max_length_b == 10
    assert longest(limit_of(two_odd), 3) == 198 + MARGIN
    assert longest(limit_of(one_odd[1:-1]), 3) == 199 + MARGIN  # of fewer pairs, each one counts


def test_a_limit_that_was_set_is_not_fitted() -> None:
    lengths = [(1, 100)]
    assert longest(limit_of(lengths, {"max_length_a": 0.0, "max_length_b": 7}), 50) == 6
    assert limit_of(lengths, {"max_length_b": 7}).decode.max_length_b == 7
    assert longest(limit_of(lengths, {"max_length_a": 2.0}), 1) == 100 + MARGIN


def test_the_limit_of_the_model_that_training_starts_from_is_the_least() -> None:
    base = limit_of([(1, 80), (10, 90)])
    tuned = limit_of([(10, 10)], base=base)
    assert tuned.decode == base.decode
    longer = limit_of([(1, 150)], base=base)
    assert longest(longer, 1) >= 150
