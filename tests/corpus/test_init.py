"""The rules by which `nmt init` chooses settings, and the YAML it writes."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.config import Config, load_config
from nmt.corpus import init
from nmt.corpus.split import Facts


def facts(n_pairs: int, letter_overlap: float = 1.0) -> Facts:
    return Facts(n_pairs, 100, 100, 0, 0, n_words=10 * n_pairs, n_characters=80, letter_overlap=letter_overlap)


def seconds(plan: init.Plan) -> tuple[float, int]:
    """Stand-in for `measure`: seconds of an epoch, which grow with the number of weights, and bytes of memory."""
    return plan.size.d_model**2 * plan.size.n_layers / 1000, 10**9


def test_more_pairs_get_larger_models_and_fewer_epochs() -> None:
    plans = [init.plan(facts(n), None, seconds) for n in (100, 3_000, 18_000, 150_000, 1_000_000, 5_000_000)]
    for key in ("vocab_size", "batch_tokens"):
        found = [getattr(plan, key) for plan in plans]
        assert found == sorted(found)
    assert [plan.size.d_model for plan in plans] == [64, 128, 128, 256, 512, 512]
    epochs = [plan.n_epochs for plan in plans]
    assert epochs == sorted(epochs, reverse=True)


def test_little_time_gets_a_smaller_model_and_the_epochs_that_fit() -> None:
    free = init.plan(facts(150_000), None, seconds)
    assert free.expected_minutes == pytest.approx(free.n_epochs * free.epoch_s / 60)
    rich = init.plan(facts(150_000), free.expected_minutes * 10, seconds)
    assert rich.size == free.size
    assert rich.n_epochs == 2 * free.n_epochs
    poor = init.plan(facts(150_000), free.expected_minutes / 100, seconds)
    assert poor.size.d_model < free.size.d_model
    assert poor.expected_minutes <= free.expected_minutes / 100
    assert poor.dropout < free.dropout, "few epochs cannot overfit"
    for plan in (free, rich, poor):  # the learning rate peaks long before the cooldown
        n_steps = 10 * 150_000 * init.PIECES_PER_WORD * plan.n_epochs / plan.batch_tokens
        assert plan.warmup <= max(n_steps / 4, 50)
    assert init.plan(facts(150_000), 0.001, seconds).n_epochs == 1


@hypothesis_settings(max_examples=50)
@given(
    st.integers(20, 10**8),
    st.floats(0, 1),
    st.none() | st.floats(0.01, 10_000),
    st.text(st.characters(exclude_categories=["Cs", "Cc"])),
)
def test_the_config_is_valid_and_says_why(
    tmp_path_factory: pytest.TempPathFactory, n_pairs: int, letter_overlap: float, minutes: float | None, name: str
) -> None:
    found = facts(n_pairs, letter_overlap)
    plan = init.plan(found, minutes, seconds)
    root = name[:40].replace("\0", "") or "x"
    file: Path = tmp_path_factory.mktemp("init") / "my.yaml"
    file.write_text(init.config_text(plan, "runs/x", root, ("de", "en")), encoding="utf-8")
    config = load_config(file)
    assert config == Config.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    assert config.data.root == root
    assert config.train.max_minutes == minutes
    assert "so that each piece is frequent enough" in file.read_text(encoding="utf-8")


def test_two_scripts_get_a_vocabulary_each() -> None:
    one, two = (init.plan(facts(18_000, letter_overlap), None, seconds) for letter_overlap in (0.9, 0.1))
    assert (one.joint, two.joint) == (True, False)
    assert two.vocab_size == one.vocab_size / 2
    many_characters = init.Plan(Facts(18_000, 100, 100, 0, 0, 180_000, 5_000, 0.1), two.size, None)
    assert many_characters.vocab_size > 5_000 + 256, "all characters, and all bytes"
