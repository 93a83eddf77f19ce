"""The two engines translate alike: greedily every line, with a beam all but the few on which their searches differ.

`make soak` also translates the test set of the demo, or of the run `NMT_SOAK_MODEL`.
"""

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import SOAK, SOURCE, FiveRun, out_lines, run_nmt, soak

from nmt.config import data_root, language
from nmt.decode.engines import ctranslate2_engine
from nmt.evaluate import bleu_tokenizer, score
from nmt.run.directory import RunDirectory
from nmt.text.lines import Pair, iter_pairs
from nmt.translate.loading import load

pytest.importorskip("ctranslate2")

ROOT = Path(__file__).parents[2]


class System(NamedTuple):
    """A run, and the pairs to translate."""

    run: Path
    pairs: list[Pair]

    def translations(self, beam: int, **options: Any) -> list[str]:
        return load(self.run, "cpu", **options).translate([pair.source for pair in self.pairs], beam=beam)

    def share_that_differs(self, beam: int) -> float:
        """The share of lines that the engines translate differently."""
        one, other = (self.translations(beam, engine=engine) for engine in ("torch", "ctranslate2"))
        n_different = sum(a != b for a, b in zip(one, other, strict=True))
        print(f"beam {beam}: {n_different} of {len(one)} lines differ")
        return n_different / len(one)


@pytest.fixture(scope="module")
def mixed_words(five_run: FiveRun) -> System:
    """The five sentences' model, and lines that it has not learned."""
    words, rng = " ".join(SOURCE).split(), random.Random(1)
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 15))) for _ in range(soak(100, 300))]
    return System(five_run.run, [Pair(i, line, "") for i, line in enumerate(lines, 1)])


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
    (test,) = data.test
    files = [[data_root(data.root) / path for path in side] for side in (test.source, test.target)]
    return System(run, list(iter_pairs(*files)))


@pytest.mark.parametrize("lines", ["mixed_words", "recipe"])
def test_few_lines_differ(lines: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    system: System = request.getfixturevalue(lines)
    assert system.share_that_differs(1) == 0
    differing = system.share_that_differs(5)
    assert differing < {"mixed_words": 0.05, "recipe": 0.01}[lines]
    monkeypatch.setattr(ctranslate2_engine, "EXTRA_FINISHED", 0)
    assert system.share_that_differs(5) > 3 * differing, "another rule to stop is noticed"


def test_batch_size_and_order_change_no_text(mixed_words: System) -> None:
    translator = load(mixed_words.run, "cpu", engine="torch")
    lines = [pair.source for pair in mixed_words.pairs[:50]]
    expected = translator.translate(lines)
    for size in (1, 7):
        assert [found.text for found in translator.translate_lines(lines, batch_size=size)] == expected
    assert translator.translate(lines[::-1]) == expected[::-1]


@pytest.mark.parametrize("beam", [1, 5])
def test_bleu_of_the_engines_is_the_same(recipe: System, beam: int) -> None:
    tokenize = bleu_tokenizer(language(RunDirectory(recipe.run).read_config().data, "target"))
    bleu = []
    for options in ({"engine": "torch"}, {"engine": "ctranslate2"}, {"precision": "int8"}):
        texts, references = recipe.translations(beam, **options), [[pair.target for pair in recipe.pairs]]
        bleu.append(score(texts, references, ("bleu",), tokenize=tokenize)[0].value)
    print(f"beam {beam}: {bleu}")
    assert bleu[1] == pytest.approx(bleu[0], abs=0.1)
    assert bleu[2] == pytest.approx(bleu[0], abs=0.3)
