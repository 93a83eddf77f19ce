"""A model with data.context reads the line before each line: in training, in validation and in translation."""

from itertools import islice, product
from pathlib import Path

import pytest
from conftest import run_nmt
from small_run import config_of, run_training

from nmt.config import Config, corpora_of
from nmt.documents.html import HTML
from nmt.errors import NmtError
from nmt.text.lines import SEPARATOR, in_context
from nmt.train.corpora import pairs_of
from nmt.translate.segments import Translation
from nmt.translate.tags import MarkupTranslator
from nmt.translate.translator import load

NOUNS = {"Die Frau": ("Sie", "She"), "Die Katze": ("Sie", "It"), "Der Mann": ("Er", "He"), "Der Hund": ("Er", "It")}
VERBS = {"singt": "sings", "schläft": "sleeps", "kommt": "comes", "lacht": "laughs"}
SIZES = {"d_model": 32, "d_ff": 64, "n_heads": 4, "n_encoder_layers": 2, "n_decoder_layers": 1, "dropout": 0.0}
COURSE = {"batch_tokens": 800, "max_steps": 150, "validate_every": 150, "lr": 1e-2, "warmup": 20, "precision": "fp32"}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A run trained on documents of two lines and a blank one; the pronoun of the second depends on the first."""
    home = tmp_path_factory.mktemp("context")
    for i, ((noun, (pronoun, expected)), one, two) in enumerate(product(NOUNS.items(), VERBS, VERBS)):
        source = f"{noun} {one}.\n{pronoun} {two}.\n\n"
        target = f"{noun} {VERBS[one]}.\n{expected} {VERBS[two]}.\n\n"
        for side, text in (("zh", source), ("en", target)):
            with (home / f"{'dev' if i % 7 == 3 else 'train'}.{side}").open("a", encoding="utf-8") as file:
                file.write(text)
    found = config_of(home, data__context=1, tokenizer__vocab_size=360, model=SIZES, train=COURSE)
    assert (run_training(found).best or 0) > 99, "dev is translated with the lines before"
    return found


def test_pairs_are_read_after_the_line_before_in_their_document(config: Config) -> None:
    first = [pair.source for pair in islice(pairs_of(config, corpora_of(config.data.train)[0]), 4)]
    assert first == ["Die Frau singt.", f"Die Frau singt.{SEPARATOR}Sie singt.", "", "Die Frau singt."]
    assert [in_context(" ", "a"), in_context("", "a"), in_context("a", " ")] == ["a", "a", " "]


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_the_line_before_decides_what_a_pronoun_becomes(config: Config, engine: str) -> None:
    lines = ["Die Frau kommt.", "Sie singt.", "", "Die Katze kommt.", "Sie singt."]
    expected = ["Die Frau comes.", "She sings.", "", "Die Katze comes.", "It sings."]
    translator = load(config.run, "cpu", engine=engine)  # type: ignore[arg-type]
    for window in (1, 2, 100):
        assert [found.text for found in translator.translate_lines(lines, window=window)] == expected


def test_the_line_before_a_line_with_markup_is_read(config: Config) -> None:
    lines = ["<p>Die Katze kommt.</p>", "Sie <b>singt</b>.", "<hr>", "<p>Die Frau kommt.</p><p>Sie singt.</p>"]
    expected = ["<p>Die Katze comes.</p>", "It <b>sings</b>.", "<hr>", "<p>Die Frau comes.</p><p>She sings.</p>"]
    translator = MarkupTranslator(load(config.run, "cpu"), HTML)
    for window in (1, 2, 100):
        assert [found.text for found in translator.translate_lines(lines, window=window)] == expected


def test_a_resumed_file_goes_on_in_its_context(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").write_text("Die Katze kommt.\nSie singt.\nDie Katze lacht.\nSie singt.\n", encoding="utf-8")
    command = ["translate", "-m", config.run, "-i", tmp_path / "in", "-o", tmp_path / "out", "--resume"]
    texts: list[str] = []

    def interrupted(found: Translation) -> str:
        if len(texts) == 3:
            raise NmtError("it was interrupted")
        texts.append(found.text)
        return found.text

    with monkeypatch.context() as patch:
        patch.setattr("nmt.cli.translate.renderer", lambda *_, **__: interrupted)
        assert run_nmt(*command).returncode == 1
    assert run_nmt(*command).returncode == 0
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == [*texts, "It sings."]
