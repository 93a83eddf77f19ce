"""Every line that the two engines translate differently is explained by a documented difference of their searches.

For such a line, the search that is written here follows torch's rules, then CTranslate2's, one at a time and together,
until it finds CTranslate2's translation. If it finds it by torch's rules, the line is a near tie.

`make test` translates mixed words of the five sentences; `make soak`, the test set of the demo, or of the run
`NMT_SOAK_MODEL`.
"""

import os
import random
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from conftest import SOAK, SOURCE, FiveRun, out_lines, run_nmt, soak
from torch import Tensor

from nmt.config import Files, data_root
from nmt.decode.engines import ctranslate2_engine
from nmt.decode.engines.ctranslate2_engine import CTranslate2Engine
from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.options import SearchOptions, Segment
from nmt.decode.segments import Line, split
from nmt.decode.translator import Translator, load
from nmt.evaluate import bleu_tokenizer, score
from nmt.run.directory import RunDirectory
from nmt.text import BOS, EOS
from nmt.text.batches import pad_source
from nmt.text.lines import Pair, iter_pairs

pytest.importorskip("ctranslate2")

ROOT = Path(__file__).parents[2]
TIE = 1e-4  # nats; rounding changes the log-probability of a translation by about 1e-5
EXTRA_FINISHED = ctranslate2_engine.EXTRA_FINISHED
RULES = {  # by which CTranslate2 differs from `nmt.decode.search`
    "limit": "a hypothesis at the length limit is truncated, without EOS; all segments of a batch have one limit",
    "stop": "the search stops when EXTRA_FINISHED more hypotheses than the beam size have finished",
    "masks": "PAD, UNK, BOS, and EOS below the minimum length, are masked before the softmax",
}


class Difference(NamedTuple):
    """A segment, and the best translation by each engine, EOS last."""

    segment: Segment
    torch: list[int]
    ctranslate2: list[int]
    limit: int  # the largest length limit of the segments that CTranslate2 translated together


class System(NamedTuple):
    """A run in both engines, and the pairs to translate."""

    run: Path
    torch: Translator
    ctranslate2: Translator
    pairs: list[Pair]

    def differences(self, options: SearchOptions, *, fault: dict[str, Any] | None = None) -> list[Difference]:
        """The segments that the engines translate differently. `fault` changes options of CTranslate2 only."""
        lines = [Line(pair.line, pair.source) for pair in self.pairs]
        segments = [*chain(*split(lines, self.torch.tokenizers.source, self.torch.config.data.max_length))]
        engine, limits = self.ctranslate2.engine, {}
        assert isinstance(engine, CTranslate2Engine)
        search = engine._search

        def recorded(batch: Sequence[Segment], *args: Any) -> Any:
            longest = max(len(segment.tokens) for segment in batch)
            limit = options.limit(longest + 1, model_limit=engine.max_length)
            limits.update({segment.place: limit for segment in batch})
            return search(batch, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "_search", recorded)
            by_ctranslate2 = engine.start(segments, options.changed(**(fault or {})), batch_size=64)()
        by_torch = self.torch.engine.start(segments, options, batch_size=64)()
        return [
            Difference(segment, one[0].tokens, other[0].tokens, limits[segment.place])
            for segment, one, other in zip(segments, by_torch, by_ctranslate2, strict=True)
            if one[0].tokens != other[0].tokens
        ]

    def reason_for(self, difference: Difference, options: SearchOptions) -> str:
        """Return `near tie`, or the fewest rules that explain a difference, or `unexplained` and the texts."""
        assert isinstance(self.torch.engine, TorchEngine)
        for rules in chain.from_iterable(combinations(RULES, n) for n in range(len(RULES) + 1)):
            with torch.inference_mode():
                scores = finished(difference, self.torch.engine, options, rules)
            if scores.get((*difference.ctranslate2,), -torch.inf) >= max(scores.values()) - TIE:
                return " and ".join(rules) or "near tie"
        source, target = self.torch.tokenizers
        texts = source.decode(difference.segment.tokens), *map(target.decode, difference[1:3])
        return "unexplained: {}\n  torch       {}\n  CTranslate2 {}".format(*texts)


class Beam(NamedTuple):
    """A hypothesis in the search."""

    tokens: tuple[int, ...]
    log_prob: float
    parent: int = 0  # the index of the beam that it continues


def finished(
    difference: Difference, engine: TorchEngine, options: SearchOptions, rules: Collection[str]
) -> dict[tuple[int, ...], float]:
    """Search one segment by torch's rules, except for the given `RULES`. Returns finished hypotheses and scores."""
    n_beams, source = options.beam, difference.segment.tokens
    limit = options.limit(len(source) + 1, model_limit=engine.max_length)
    last = difference.limit - 1 if "limit" in rules else limit
    scores: dict[tuple[int, ...], float] = {}
    live, state = [Beam((), 0.0)], engine.decoder.start(pad_source([source]))
    for length in range(1, last + 1):
        last_tokens = torch.tensor([[(BOS, *beam.tokens)[-1] for beam in live]])
        logits, state = engine.decoder.step(last_tokens, state)
        vocabulary = torch.arange(logits.size(-1))
        masked = vocabulary < (EOS + 1 if length <= options.min_length else EOS)
        if length == limit and "limit" not in rules:
            masked = vocabulary != EOS
        if "masks" in rules:
            logits = logits.masked_fill(masked, -torch.inf)
        log_probs = logits[0].log_softmax(-1).masked_fill(masked, -torch.inf)  # (K, V)
        candidates = best_candidates(live, log_probs, 2 * n_beams, difference)
        for tokens, log_prob, _ in candidates[:n_beams]:
            if tokens[-1] == EOS or length == last:
                ended = tokens if tokens[-1] == EOS else (*tokens, EOS)
                scores[ended] = log_prob / options.length_divisor(length)
        live = [candidate for candidate in candidates if candidate.tokens[-1] != EOS][:n_beams]
        if not live or is_done(live[0].log_prob / options.length_divisor(length), scores, n_beams, rules):
            break
        state = engine.decoder.select(state, torch.tensor([[beam.parent for beam in live]]))
    return scores


def is_done(best_live: float, scores: dict[tuple[int, ...], float], n_beams: int, rules: Collection[str]) -> bool:
    """Whether the search stops, given the score of the best live hypothesis at its length."""
    if "stop" in rules:
        return len(scores) >= n_beams + (EXTRA_FINISHED if n_beams > 1 else 0)
    return len(scores) >= n_beams and best_live <= sorted(scores.values())[-n_beams]


def best_candidates(live: list[Beam], log_probs: Tensor, n: int, difference: Difference) -> list[Beam]:
    """Return the n best continuations of live hypotheses, given the log-probabilities of next tokens (K, V).

    They are ranked as if rounding had added `TIE` to the beginnings of CTranslate2's translation, and subtracted it
    from those of torch's. A near tie may also decide which hypotheses the beam keeps.
    """
    sums = torch.tensor([[beam.log_prob] for beam in live]) + log_probs
    ranked = sums.clone()
    for row, beam in enumerate(live):
        length = len(beam.tokens)
        for translation, change in ((difference.ctranslate2, TIE), (difference.torch, -TIE)):
            if (*translation[:length],) == beam.tokens and length < len(translation):
                ranked[row, translation[length]] += change
    candidates = []
    for index in ranked.flatten().topk(n).indices.tolist():
        parent, token = divmod(index, sums.size(1))
        candidates.append(Beam((*live[parent].tokens, token), float(sums[parent, token]), parent))
    return [candidate for candidate in candidates if candidate.log_prob > -torch.inf]


@pytest.fixture(scope="module")
def mixed_words(five_run: FiveRun) -> System:
    """The five sentences' model, and lines that it has not learned."""
    words, rng = " ".join(SOURCE).split(), random.Random(1)
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 15))) for _ in range(soak(100, 300))]
    return system_of(five_run.run, [Pair(i, line, "") for i, line in enumerate(lines, 1)])


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> System:
    """The model and the test set of a recipe."""
    if not SOAK:
        pytest.skip("make soak trains or loads the model of a recipe")
    named = os.environ.get("NMT_SOAK_MODEL")
    run = Path(named) if named else tmp_path_factory.mktemp("demo") / "run"
    if not named:
        settings = [f"run={run}", f"data.root={ROOT}"]
        out_lines(run_nmt("train", ROOT / "configs" / "demo.yaml", *settings, cwd=ROOT))
    data = RunDirectory(run).read_config().data
    assert isinstance(data.test, Files), "the run's config names no test set"
    files = [[data_root(data.root) / path for path in side] for side in (data.test.source, data.test.target)]
    return system_of(run, list(iter_pairs(*files)))


def system_of(run: Path, pairs: list[Pair]) -> System:
    return System(run, load(run, "cpu", engine="torch"), load(run, engine="ctranslate2"), pairs)


@pytest.mark.parametrize("lines", ["mixed_words", "recipe"])
@pytest.mark.parametrize("changed", [{"beam": 1}, {"beam": 5}, {"beam": 5, "min_length": 8}], ids=str)
def test_every_difference_is_explained(lines: str, changed: dict[str, Any], request: pytest.FixtureRequest) -> None:
    system: System = request.getfixturevalue(lines)
    options = system.torch.with_options(**changed)
    reasons = [system.reason_for(difference, options) for difference in system.differences(options)]
    print(f"{changed}: {len(reasons)} of {len(system.pairs)} lines differ: {dict(Counter(reasons))}")
    assert [reason for reason in reasons if reason.startswith("unexplained")] == []


@pytest.mark.parametrize(
    "fault", [{"alpha": 0.0}, {"alpha": 0.9}, {"beam": 4}, {"max_length_b": 3}, {"min_length": 8}], ids=str
)
def test_wrong_search_options_of_one_engine_are_not_explained(mixed_words: System, fault: dict[str, Any]) -> None:
    options = mixed_words.torch.with_options(beam=5)
    reasons = (mixed_words.reason_for(one, options) for one in mixed_words.differences(options, fault=fault))
    assert any(reason.startswith("unexplained") for reason in reasons)


def test_wrong_stopping_rule_is_not_explained(mixed_words: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2_engine, "EXTRA_FINISHED", 0)
    options = mixed_words.torch.with_options(beam=5)
    reasons = (mixed_words.reason_for(one, options) for one in mixed_words.differences(options))
    assert any(reason.startswith("unexplained") for reason in reasons)


def test_batch_size_and_order_change_no_text(mixed_words: System) -> None:
    translator, lines = mixed_words.torch, [pair.source for pair in mixed_words.pairs[:50]]
    expected = translator.translate(lines)
    for size in (1, 7):
        assert [found.text for found in translator.translate_lines(lines, batch_size=size)] == expected
    assert translator.translate(lines[::-1]) == expected[::-1]


@pytest.mark.parametrize("beam", [1, 5])
def test_bleu_of_the_engines_is_the_same(recipe: System, beam: int) -> None:
    references = [pair.target for pair in recipe.pairs]
    int8 = load(recipe.run, precision="int8")
    bleu = {}
    for name, translator in (("torch", recipe.torch), ("ctranslate2", recipe.ctranslate2), ("int8", int8)):
        texts = translator.translate([pair.source for pair in recipe.pairs], beam=beam)
        (found,) = score(texts, [references], ("bleu",), tokenize=bleu_tokenizer(translator.target_language))
        bleu[name] = found.value
    print(f"beam {beam}: {bleu}")
    assert bleu["ctranslate2"] == pytest.approx(bleu["torch"], abs=0.1)
    assert bleu["int8"] == pytest.approx(bleu["torch"], abs=0.3)
