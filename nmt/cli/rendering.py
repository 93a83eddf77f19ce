"""Functions that format translations as lines of output: plain or as JSON."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from nmt.translate.translator import Translator
    from nmt.translate.units import TextHypothesis, Translation


def renderer(
    translator: "Translator", json_lines: bool, min_confidence: float | None
) -> "Callable[[Translation], str]":
    """Return a function that formats a translation as a line, and logs doubtful lines."""
    from nmt.translate.confidence import find_doubts

    def render(translation: "Translation") -> str:
        find_doubts(translator, translation, min_confidence)
        if json_lines:
            return as_json(translation, translator)
        return translation.text

    return render


def as_json(translation: "Translation", translator: "Translator | None" = None) -> str:
    """Format a translation as JSON, with the scores and pieces of all hypotheses.

    With `translator`, the JSON also has words and confidences.
    """
    hypotheses = [hypothesis_tree(hypothesis, translator) for hypothesis in translation.hypotheses]
    tree: dict[str, Any] = {"source": translation.source, "hypotheses": hypotheses}
    if translation.doubts is not None:
        tree |= {"doubtful": bool(translation.doubts), "reasons": translation.doubts}
    if translation.matches:
        tree["matches"] = translation.matches
    # JSON has no -inf, so a log-probability of -inf is written as null.
    return json.dumps(to_jsonable_python(tree, inf_nan_mode="null"), ensure_ascii=False)


def hypothesis_tree(hypothesis: "TextHypothesis", translator: "Translator | None") -> dict[str, Any]:
    """Return a hypothesis as a dictionary for `as_json`."""
    # 1. Add the values of the hypothesis.
    pieces = []
    for piece, log_prob in zip(hypothesis.pieces, hypothesis.log_probs, strict=True):
        pieces.append({"piece": piece, "log_prob": log_prob})
    tree = {"text": hypothesis.text, "score": hypothesis.score, "log_prob": hypothesis.log_prob, "pieces": pieces}
    # The key "cut" exists only if the length limit cut off the hypothesis.
    if hypothesis.is_cut:
        tree["cut"] = True
    # 2. Add the words and their confidences.
    if translator:
        from nmt.translate.confidence import confidence_of, words_of

        words = words_of(translator, hypothesis)
        tree["confidence"] = confidence_of(words)
        tree["words"] = [word._asdict() for word in words]
    return tree
