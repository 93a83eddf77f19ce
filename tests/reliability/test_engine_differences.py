"""The two engines translate alike: greedily every line, with a beam all but the few on which their searches differ.

`make soak` also translates the test set of the demo, or of the run `NMT_SOAK_MODEL`.
"""

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import SOAK, SOURCE, FiveRun, run_nmt, soak

from nmt.config import language
from nmt.decode.engines import ctranslate2_engine
from nmt.evaluate import choose_settings, score
from nmt.run.directory import RunDirectory
from nmt.text.lines import iter_lines
from nmt.train.corpora import corpus_paths
from nmt.translate.loading import load

pytest.importorskip("ctranslate2")

ROOT = Path(__file__).parents[2]


class System(NamedTuple):
    """A run, lines to translate, and their references."""

    run: Path
    lines: list[str]
    references: list[str]
    most_that_differ: float  # with a beam

    def translations(self, beam: int, **options: Any) -> list[str]:
        return load(self.run, "cpu", **options).translate(self.lines, beam=beam, whole_lines=True)

    def share_that_differs(self, beam: int) -> float:
        """The share of lines that the engines translate differently."""
        by_torch = self.translations(beam, engine="torch")
        by_ctranslate2 = self.translations(beam, engine="ctranslate2")
        pairs = zip(by_torch, by_ctranslate2, strict=True)
        n_different = sum(a != b for a, b in pairs)
        print(f"beam {beam}: {n_different} of {len(by_torch)} lines differ")
        return n_different / len(by_torch)


@pytest.fixture(scope="module")
def mixed_words(five_run: FiveRun) -> System:
    """The five sentences' model, and lines that it has not learned."""
    words = " ".join(SOURCE).split()
    rng = random.Random(1)
    lines = []
    for _ in range(soak(100, 300)):
        chosen = rng.choices(words, k=rng.randint(1, 15))
        lines.append(" ".join(chosen))
    return System(five_run.run, lines, [], 0.05)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> System:
    """The model and the test set of a recipe."""
    if not SOAK:
        pytest.skip("make soak trains or loads the model of a recipe")
    new_run = tmp_path_factory.mktemp("demo") / "run"
    run = Path(os.environ.get("NMT_SOAK_MODEL", new_run))
    if not run.exists():
        done = run_nmt("train", ROOT / "configs/demo.yaml", f"run={run}", f"data.root={ROOT}", cwd=ROOT)
        assert done.returncode == 0, done.stderr.decode()
    config = RunDirectory(run).read_config()
    (files,) = config.data.test
    sources, references = corpus_paths(config, files)
    return System(run, list(iter_lines(sources)), list(iter_lines(references)), 0.01)


@pytest.mark.parametrize("name", ["mixed_words", "recipe"])
def test_few_lines_differ(name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    system: System = request.getfixturevalue(name)
    assert system.share_that_differs(1) == 0
    differing = system.share_that_differs(5)
    assert differing < system.most_that_differ
    monkeypatch.setattr(ctranslate2_engine, "EXTRA_FINISHED", 0)
    assert system.share_that_differs(5) > 3 * differing, "another rule to stop is noticed"


def test_batch_size_and_order_change_no_text(mixed_words: System) -> None:
    translator = load(mixed_words.run, "cpu", engine="torch")
    lines = mixed_words.lines[:50]
    expected = translator.translate(lines)
    for size in (1, 7):
        translations = translator.translate_lines(lines, batch_size=size)
        assert [translation.text for translation in translations] == expected
    result = translator.translate(lines[::-1])
    assert result == expected[::-1]


@pytest.mark.parametrize("beam", [1, 5])
def test_bleu_of_the_engines_is_the_same(recipe: System, beam: int) -> None:
    data = RunDirectory(recipe.run).read_config().data
    settings = choose_settings(language(data, "target"), [recipe.references])

    def bleu(**options: str) -> float:
        hypotheses = recipe.translations(beam, **options)
        (bleu,) = score(hypotheses, [recipe.references], ("bleu",), settings)
        return bleu.value

    expected = bleu(engine="torch")
    result = bleu(engine="ctranslate2")
    assert result == pytest.approx(expected, abs=0.1)
    result = bleu(precision="int8")
    assert result == pytest.approx(expected, abs=0.3)
