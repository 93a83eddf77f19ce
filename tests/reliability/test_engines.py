"""Any batching gives the same translations, and the two engines differ in few lines.

`make test` translates mixed words of the five sentences; `make soak`, the test set of the demo, or of the run
`NMT_SOAK_MODEL`.
"""

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import SOURCE, FiveRun, out_lines, run_nmt

from nmt.config import data_root
from nmt.decode.translator import Translator, load
from nmt.evaluate import bleu_tokenizer, score
from nmt.run.directory import RunDirectory
from nmt.text.lines import read_lines

from .conftest import SOAK

pytest.importorskip("ctranslate2")

ROOT = Path(__file__).parents[2]
FEW = 0.03  # share of lines; with a beam, the searches stop by different rules: see nmt/decode/README.md


class System(NamedTuple):
    """A run in both engines, and the lines to translate."""

    torch: Translator
    ctranslate2: Translator
    sources: list[str]
    references: list[str]

    def n_different(self, beam: int = 5, **fault: Any) -> int:
        """The number of lines that the engines translate differently; `fault` changes options of torch only."""
        by_torch = self.torch.translate(self.sources, **{"beam": beam, **fault})
        by_ctranslate2 = self.ctranslate2.translate(self.sources, beam=beam)
        return sum(one != other for one, other in zip(by_torch, by_ctranslate2, strict=True))


@pytest.fixture(scope="module")
def mixed_words(five_run: FiveRun) -> System:
    """The five sentences' model, and 300 lines that it has not learned."""
    words, rng = " ".join(SOURCE).split(), random.Random(1)
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 15))) for _ in range(300)]
    return system_of(five_run.run, lines, [])


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
    assert data.test, "the run's config names no test set"
    root = data_root(data.root)
    return system_of(
        run, *(read_lines([root / path for path in side]) for side in (data.test.source, data.test.target))
    )


def system_of(run: Path, sources: list[str], references: list[str]) -> System:
    return System(load(run, "cpu", engine="torch"), load(run, engine="ctranslate2"), sources, references)


@pytest.fixture(params=["mixed_words", "recipe"])
def system(request: pytest.FixtureRequest) -> System:
    found: System = request.getfixturevalue(request.param)
    return found


def test_batch_size_and_order_change_no_text(system: System) -> None:
    translator, lines = system.torch, system.sources[: 1000 if SOAK else 50]
    expected = translator.translate(lines)
    for size in (1, 7):
        assert [found.text for found in translator.translate_lines(lines, batch_size=size)] == expected
    order = random.Random(1).sample(range(len(lines)), len(lines))
    assert translator.translate([lines[i] for i in order]) == [expected[i] for i in order]


def test_the_engines_are_equal_in_greedy_search_and_nearly_with_a_beam(system: System) -> None:
    assert system.n_different(beam=1) == 0
    n_different = system.n_different()
    print(f"{n_different} of {len(system.sources)} lines differ")
    assert n_different <= FEW * len(system.sources)


@pytest.mark.parametrize("fault", [{"alpha": 0.0}, {"max_length_b": 3}], ids=str)
def test_other_search_options_of_one_engine_change_many_lines(mixed_words: System, fault: dict[str, Any]) -> None:
    assert mixed_words.n_different(**fault) > FEW * len(mixed_words.sources)


@pytest.mark.parametrize("beam", [1, 5])
def test_bleu_of_the_engines_is_the_same(recipe: System, beam: int) -> None:
    assert recipe.torch.run
    int8 = load(recipe.torch.run.path, precision="int8")
    bleu = {}
    for name, translator in (("torch", recipe.torch), ("ctranslate2", recipe.ctranslate2), ("int8", int8)):
        texts = translator.translate(recipe.sources, beam=beam)
        (found,) = score(texts, [recipe.references], ("bleu",), tokenize=bleu_tokenizer(translator.target_language))
        bleu[name] = found.value
    print(f"beam {beam}: {bleu}")
    assert bleu["ctranslate2"] == pytest.approx(bleu["torch"], abs=0.1)
    assert bleu["int8"] == pytest.approx(bleu["torch"], abs=0.3)
