"""The explanation of a translation as a page, as JSON, and as text for a terminal."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from torch import Tensor

from nmt.insight import pages
from nmt.insight.explain import Explanation
from nmt.insight.heads import table
from nmt.insight.stages import excerpts
from nmt.insight.tables import columns

MAX_COLUMNS = 64  # columns of a stage's heat map


def as_page(explanation: Explanation) -> str:
    """A self-contained HTML page."""
    stages = [  # with at most `MAX_COLUMNS` hidden units
        replace(stage, values=stage.values[:, :MAX_COLUMNS]) if stage.axes[-1] in "DdF" else stage
        for stage in explanation.stages
    ]
    data = {**vars(explanation), "stages": stages, "attention": explanation.attention._asdict(), "code": excerpts()}
    return pages.page("explain", f"{explanation.source} – nmt explain", pages.plain(data, pages.packed))


def as_json(explanation: Explanation) -> str:
    """One JSON object with all fields of the explanation; tensors as nested lists."""
    data = {**vars(explanation), "attention": explanation.attention._asdict()}
    return json.dumps(pages.plain(data, Tensor.tolist), ensure_ascii=False)


def as_text(explanation: Explanation) -> list[str]:
    """The explanation as lines of text."""
    best, greedy = explanation.translation, explanation.greedy
    least = min(best.tokens, key=lambda token: token.log_prob)
    lines = [
        explanation.source,
        f"→ {best.text}",
        "",
        f"The model: {explanation.model}.",
        f"The translation has log-probability {best.log_prob:.3f} and score {best.score:.3f}.",
        f"It was least sure at {least.piece}: {probability(least.log_prob)}.",
        "Greedy search writes the same." if greedy.text == best.text else f"Greedy search writes: {greedy.text}",
    ]
    for heading, body in _sections(explanation):
        lines += ["", heading, *body]
    return lines


def _sections(e: Explanation) -> Iterator[tuple[str, Iterable[str]]]:
    yield "SOURCE", columns(["piece", "id"], zip(e.source_pieces, e.source_tokens, strict=True))
    yield "EACH TOKEN, its probability, what it attends to most, and what else could have come", _tokens(e)
    yield "ATTENTION HEADS, means over this pair", table(e.heads)
    yield "THE SEARCH: best candidates of each step (+ kept, . finished, - pruned)", _search(e)
    hypotheses = ((f"{h.score:.3f}", f"{h.log_prob:.3f}", h.text) for h in e.hypotheses)
    yield "HYPOTHESES", columns(["score", "log-prob", "text"], hypotheses)
    if e.reference:
        yield "THE REFERENCE by teacher forcing: each token, given the true ones before it", _reference(e)
    one_pass = [f"→ {e.one_pass.text}"]
    yield "ONE PASS over <s> and padding, which shows it no previous tokens (a common mistake)", one_pass


def probability(log_prob: float) -> str:
    return f"{100 * math.exp(log_prob):.1f} %"


def _tokens(e: Explanation) -> list[str]:
    cross = e.attention.cross  # (L, 1, H, T, S); empty without attention
    rows = []
    for i, token in enumerate(e.translation.tokens):
        others = [f"{c.piece} {probability(c.log_prob)}" for c in token.alternatives if c.token != token.token]
        looked = e.source_pieces[int(cross.mean((0, 1, 2))[i].argmax())] if len(cross) else ""
        rows.append((token.piece, probability(token.log_prob), looked, ", ".join(others)))
    return columns(["token", "prob.", "attends to", "instead of it"], rows)


def _search(e: Explanation) -> Iterator[str]:
    marks = {"kept": "+", "finished": ".", "pruned": "-"}
    for position in range(1, max((node.position for node in e.tree), default=0) + 1):
        nodes = [node for node in e.tree if node.position == position]
        told = [f"{marks[n.status]}{n.piece} {n.log_prob:.2f}{' *' if n.is_best else ''}" for n in nodes]
        yield f"{position:3}  {'   '.join(told)}"
    yield "     (the number is the log-probability of the whole hypothesis; * is on the path of the translation)"


def _reference(e: Explanation) -> list[str]:
    assert e.reference
    greedy = [token.piece for token in e.greedy.tokens]
    rows = [
        (token.piece, probability(token.log_prob), token.rank, token.alternatives[0].piece, own)
        for token, own in zip(e.reference.tokens, [*greedy, *[""] * len(e.reference.tokens)], strict=False)
    ]
    header = ["reference", "prob.", "rank", "most probable", "generated freely"]
    end = f"log-probability {e.reference.log_prob:.3f}; sentence BLEU of the translation {e.reference.bleu:.1f}"
    return [*columns(header, rows), end]
