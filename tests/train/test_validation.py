"""Warnings about dev figures, only if the figures suggest that something is wrong."""

import logging
from pathlib import Path

import pytest
from small_run import config_of

from nmt.config import Config
from nmt.evaluate import Score
from nmt.text.lines import Pair
from nmt.train.report import Report, clock
from nmt.train.session import prepare
from nmt.train.validation import Validation, mean_score, scores_by_direction, validate, warnings_about
from nmt.translate.confidence import Calibration

SCORE = Score("BLEU", 10.0, None, None, "signature")


@pytest.mark.parametrize(
    ("losses", "repeated", "expected"),
    [
        ([3.0, 2.5, 2.0, 1.9], 0.01, ""),
        ([3.0], 0.9, ""),
        ([3.0, 2.9], 0.9, "90% of the dev lines are translated alike ('the the the')"),
        ([2.0, 1.5, 1.6, 1.7, 1.8], 0.0, "dev loss has risen three times running"),
        ([2.0, 1.5, 1.6, 1.7], 0.0, ""),
        ([9.0, 8.9, 8.95], 0.0, "dev loss is 8.95 after 300 steps, hardly below chance (8.99)"),
        ([9.3, 9.6, 9.5], 0.0, "dev loss is 9.50 after 300 steps, above chance (8.99)"),
        ([40_000.0], 0.0, "dev loss is 40000.00 after 100 steps, far above chance (8.99): the training diverged"),
        ([3.0, 2.5, 19.0], 0.0, "the training diverged; lower train.lr"),
        ([3.0, 4.0, 90.0, 900.0], 0.0, "the training diverged; lower train.lr"),
        ([3.0, 2.5, 9.6], 0.0, "dev loss is 9.60 after 300 steps, above chance (8.99): the training diverged"),
        ([3.0, 2.5, 9.6, 9.1, 8.8], 0.0, "hardly below chance (8.99): the training diverged"),
        ([3.0, 2.5, 9.6, 4.0], 0.0, ""),
        ([50.0, 20.0, 9.4], 0.0, "dev loss is 9.40 after 300 steps, above chance (8.99): the training diverged"),
        ([1e9], 0.0, "dev loss is 1.00e+09 after 100 steps"),
        ([5.0, 6.0, 8.9, 9.1, 9.0], 0.0, ""),
        ([5.0, 7.0, 10.0, 14.0, 19.0], 0.0, "the model learns train by heart"),
        ([2.0, 3.0, 2.5, 2.6, 2.7], 0.0, ""),
        ([6.0] * 6, 0.0, "has not fallen in three validations"),
    ],
)
def test_advice(losses: list[float], repeated: float, expected: str) -> None:
    history = [{"step": 100 * i, "dev_nll": loss} for i, loss in enumerate(losses, 1)]
    latest = Validation(2.0, 1.9, SCORE, SCORE, [], ("the the the", repeated), Calibration())
    words = "\n".join(warnings_about(history, latest, 8000))
    assert expected in words
    assert bool(words) == bool(expected)


def test_a_model_that_diverged_is_not_told_to_go_on() -> None:
    history = [{"step": 100 * i, "dev_nll": loss} for i, loss in enumerate([2.0, 3.0, 50.0, 60.0, 70.0, 80.0], 1)]
    latest = Validation(80.0, 80.0, SCORE, SCORE, [], ("the the the", 0.01), Calibration())
    (warning,) = warnings_about(history, latest, 100)
    assert "diverged" in warning


@pytest.mark.parametrize("target", ["tgt", "th"])
def test_the_references_pick_the_tokenizer(target: str) -> None:
    config = Config.model_validate({"run": "run", "data": {"train": {"source": "t.en", "target": f"t.{target}"}}})
    dev = [Pair(1, "I am at home", "ฉันอยู่บ้าน")]
    bleu, _ = scores_by_direction(dev, ["ฉันอยู่บ้าน"], config)[""]
    assert "|tok:char|" in bleu.signature
    assert bleu.value == pytest.approx(100)


def test_the_mean_of_directions_has_all_signatures() -> None:
    scores = [Score("BLEU", value, None, None, signature) for value, signature in ((10, "a"), (20, "b"), (60, "a"))]
    assert mean_score(scores) == Score("BLEU", 30.0, None, None, "a, b")


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "5 s"), (65, "1 min 05 s"), (3600 + 120, "1 h 02 min")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_cut_dev_lines_are_counted(corpus: Path) -> None:
    """A model that has learned nothing goes on to the limit; the limit of the data stays as it is."""
    session = prepare(config_of(corpus))
    model, dev = session.model.eval(), session.corpus.dev
    short = session.config.decode.model_copy(update={"max_length_a": 0.0, "max_length_b": 1})
    cut = validate(model, session.tokenizers, dev, session.config.model_copy(update={"decode": short}), bf16=False)
    assert cut.n_cut == cut.figures()["dev_cut"] == len(dev)


def test_the_figures_of_a_validation_say_how_many_lines_were_cut(caplog: pytest.LogCaptureFixture) -> None:
    report = Report(0.0, quiet=True)
    for n_cut in (0, 12):
        latest = Validation(2.0, 1.9, SCORE, SCORE, [], ("the", 0.1), Calibration(), n_cut=n_cut)
        with caplog.at_level(logging.INFO, "nmt"):
            report.validation(7, latest, best=False)
    plain, cut = [record.getMessage() for record in caplog.records]
    assert cut == f"{plain}, 12 lines cut off at the length limit"
    report.close()
