"""Every recipe in configs/ parses, and the source and target files of its corpora match."""

from pathlib import Path

import pytest

from nmt.config import Config, Files, data_root, language, load_config
from nmt.corpus.catalog import CORPORA
from nmt.train.preparation import all_corpora, root_of

ROOT = Path(__file__).parents[1]
FILES = [*(ROOT / "configs").glob("**/*.yaml"), *(ROOT / "configs").glob("**/*.yml")]
RECIPES = sorted(path for path in FILES if path.parent.name != "cluster")  # configs/cluster has Kubernetes jobs


@pytest.fixture(params=RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def recipe(request: pytest.FixtureRequest) -> Config:
    return load_config(request.param)


def corpora(config: Config) -> dict[str, Files]:
    return all_corpora(config)


def bare(path: str) -> str:
    return Path(path).name.removesuffix(".gz")


def test_there_are_recipes() -> None:
    assert RECIPES


def test_every_recipe_parses_and_says_where_its_run_lies(recipe: Config) -> None:
    assert Path(recipe.run).parts[0] == "runs"
    assert len(Path(recipe.run).parts) == 2


def test_no_two_recipes_share_a_run() -> None:
    runs = [load_config(path).run for path in RECIPES]
    assert len(runs) == len(set(runs))


def test_the_two_sides_of_every_corpus_belong_together(recipe: Config) -> None:
    """Both sides have equally many files, whose names differ only in the language; there is one language pair."""
    endings: set[tuple[str, str]] = set()
    for name, files in corpora(recipe).items():
        assert len(files.source) == len(files.target), name
        assert len({*files.source, *files.target}) == 2 * len(files.source), name
        for source, target in zip(files.source, files.target, strict=True):
            assert Path(source).parent == Path(target).parent
            source_stem, _, source_ending = bare(source).rpartition(".")
            target_stem, _, target_ending = bare(target).rpartition(".")
            assert source_stem == target_stem
            endings.add((source_ending, target_ending))
    assert len(endings) == 1
    assert len(set(*endings)) == 2


def test_a_recipe_knows_its_languages_and_has_a_test_set(recipe: Config) -> None:
    """The target language selects BLEU's tokenizer."""
    source, target = language(recipe.data, "source"), language(recipe.data, "target")
    assert source
    assert target
    assert source != target
    assert recipe.data.test is not None


def test_no_recipe_names_a_place_of_one_machine(recipe: Config) -> None:
    for files in corpora(recipe).values():
        for path in (*files.source, *files.target):
            assert not Path(recipe.data.root, path).is_absolute(), path


def test_a_corpus_ships_with_the_project_or_can_be_downloaded(recipe: Config) -> None:
    if not recipe.data.root:
        assert all((ROOT / path).is_file() for files in corpora(recipe).values() for path in files.source)
        return
    for files in corpora(recipe).values():
        corpus = CORPORA[root_of(recipe, files)]
        paths = {path.removesuffix(".gz") for path in (*files.source, *files.target)}
        assert paths <= set(corpus.files(corpus.languages))


def test_where_one_side_of_a_corpus_is_there_the_other_is_too(recipe: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for files in corpora(recipe).values():
        for pair in zip(files.source, files.target, strict=True):
            source, target = (data_root(root_of(recipe, files)) / path for path in pair)
            assert source.is_file() == target.is_file(), pair
