"""Minimum Bayes risk: the ranking compared with results by hand and with sacreBLEU's sentence scores."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from models import LINES, small_translator
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from nmt.decode.mbr import by_expected_utility
from nmt.decode.options import Hypothesis, Segment
from nmt.evaluate import pairwise_scores

TRANSLATOR = small_translator(max_length=40)


def sample(log_prob: float, token: int = 5) -> Hypothesis:
    return Hypothesis([token, 3], [log_prob, 0.0], log_prob / 2)


def table(texts: Sequence[str], **similarity: float) -> Any:
    """Scores of texts: `ab` is the similarity of the text a to the reference b; that of equal texts is 100."""
    return np.array([[100.0 if h == r else similarity[h + r] for r in texts] for h in texts])


def test_sample_most_similar_to_the_others_ranks_first() -> None:
    scores = table("abc", ab=40, ac=10, ba=30, bc=50, ca=20, cb=60)
    found = by_expected_utility([sample(-1, 5), sample(-2, 6), sample(-3, 7)], ["a", "b", "c"], scores)
    ranked = [(h.tokens[0], h.score, h.log_prob) for h in found]
    assert ranked == [(6, 40, -2), (7, 40, -3), (5, 25, -1)], "of equal scores, the likeliest is first"
    assert [h.score for h in by_expected_utility([sample(-1)], ["a"], table("a"))] == [0]


def test_equal_samples_are_returned_once_and_counted_each() -> None:
    samples = [sample(-5, 5), sample(-1, 6), sample(-4, 7), sample(-6, 8)]
    found = by_expected_utility(samples, ["a", "b", "a", "a"], table("abaa", ab=10, ba=20))
    # the references of each of the three samples "a" are two "a" and one "b"
    assert [h.score for h in found] == pytest.approx([(100 + 100 + 10) / 3, 20])
    assert found[0].tokens[0] == 7, "the most probable of the three is returned"


@pytest.mark.parametrize(("mbr", "metric"), [("chrf", CHRF()), ("bleu", BLEU(effective_order=True))])
def test_translations_are_the_best_samples_of_the_same_seed(mbr: str, metric: Any) -> None:
    drawing = {"temperature": 0.7, "top_p": 0.95, "seed": 3}
    options = TRANSLATOR.with_options(mbr=mbr, n_samples=8, n_best=3, **drawing)
    samples = TRANSLATOR.with_options(sample=True, beam=8, n_best=8, **drawing)
    found = list(TRANSLATOR.translate_lines(["", *LINES], options))
    drawn = list(TRANSLATOR.translate_lines(["", *LINES], samples))
    assert found[0].text == ""
    for one, all_drawn in zip(found[1:], drawn[1:], strict=True):
        texts = [h.text for h in all_drawn.hypotheses]
        expected = {
            text: np.mean([metric.sentence_score(text, [other]).score for j, other in enumerate(texts) if j != i])
            for i, text in enumerate(texts)
        }
        best = sorted(expected.values(), reverse=True)[: len(one.hypotheses)]
        assert len(one.hypotheses) == min(3, len(Counter(texts)))
        assert [h.score for h in one.hypotheses] == pytest.approx(best)
        assert [expected[h.text] for h in one.hypotheses] == pytest.approx(best)
        assert [h.log_prob for h in one.hypotheses] == [
            max(other.log_prob for other in all_drawn.hypotheses if other.text == h.text) for h in one.hypotheses
        ]


def test_score_of_a_split_line_is_the_mean_utility_of_its_segments() -> None:
    translator = small_translator(max_length=20)
    parts = ["dogs play.", "where is it?", "a cat!"]
    encode, options = translator.tokenizers.source.encode, translator.with_options(mbr="chrf", n_samples=4)
    whole = next(translator.translate_lines([" ".join(parts)], options)).hypotheses[0]
    segments = [Segment(encode(part), place=(1, i)) for i, part in enumerate(parts)]
    drawing = translator.with_options(sample=True, beam=4, n_best=4)
    drawn = translator.engine.start(segments, drawing, batch_size=3)()
    scores = []
    for samples in drawn:
        texts = [translator.tokenizers.target.decode(h.tokens) for h in samples]
        utility = pairwise_scores(texts, "chrf")
        scores.append(max((utility.sum(1) - utility.diagonal()) / 3))
    assert whole.score == pytest.approx(np.mean(scores))
    assert whole.pieces.count("</s>") == 3
    assert whole.log_prob == pytest.approx(sum(whole.log_probs))
