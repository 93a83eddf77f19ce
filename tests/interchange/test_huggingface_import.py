"""Import of Marian models: nmt's tokens and translations equal those of transformers."""

import itertools
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SOURCE, TARGET, err_lines, one_clear_error, out_lines, run_nmt
from models import hostile_lines
from safetensors.torch import load_file, save_file

import nmt
from nmt.errors import ConfigError, ModelError, NmtError
from nmt.interchange import importing
from nmt.interchange.huggingface import to_huggingface
from nmt.interchange.huggingface_import import SPECIAL_PIECES, read_huggingface
from nmt.interchange.importing import import_model
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.translate.encode import Encoding
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator
from nmt.translate.units import Unit

transformers = pytest.importorskip("transformers", reason="pip install 'nmt-trainer[huggingface]'")
from huggingface_models import ENGLISH, GERMAN, spm, write_marian  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # a warning about sacremoses, which is not used

APART = {"share_encoder_decoder_embeddings": False}
UNTIED = {"tie_word_embeddings": False}
GELU = {"activation_function": "gelu", "encoder_layers": 1, "decoder_layers": 3}
TURNED = {"source_spm": spm(ENGLISH + TARGET), "target_spm": spm(GERMAN + SOURCE)}
SHAPES: dict[str, dict[str, Any]] = {
    "as OPUS-MT": {},
    "output apart": UNTIED,
    "all apart, gelu": APART | UNTIED | GELU,
    "two vocabularies, start is a piece of the target": {**APART, "separate": True, **TURNED},
    "tags, pieces that the vocabulary lacks": {"tags": (">>fra<<", ">>deu<<"), "without": ("▁the", "er", "。")},
}
LOOKS_TAGGED = [">>fra<<", ">>fra<< the.", " >>fra<<", "a>>fra<< the.", ">>xyz<<", " >>xyz<< the.", "a>>xyz<<"]


class Imported:
    """A model of transformers and the run imported from it; the import has compared their log-probabilities."""

    def __init__(self, directory: Path, run: Path, engine: Any = "torch") -> None:
        self.directory = directory
        import_model(read_huggingface(directory), run)
        self.ours: Translator = nmt.load(run, engine=engine)
        self.theirs = transformers.MarianMTModel.from_pretrained(directory, use_safetensors=True).eval()
        self.their_tokenizer = transformers.MarianTokenizer.from_pretrained(directory, split_special_tokens=True)
        files = read_huggingface(directory)
        self.source_rows = torch.tensor(files.source.rows)  # of the original's embedding, for our token ids
        self.target_rows = torch.tensor(files.target.rows)

    def their_translation(self, text: str) -> str:
        """Greedy, by `generate`."""
        ids = self.their_tokenizer(text)["input_ids"]
        banned = self.target_rows[[PAD, UNK]].unsqueeze(1).tolist()
        limit = len(ids) + 15
        options = {"num_beams": 1, "do_sample": False, "max_new_tokens": limit, "bad_words_ids": banned}
        (found,) = self.theirs.generate(torch.tensor([ids]), **options)
        decoded: str = self.their_tokenizer.decode(found[1:], skip_special_tokens=True, use_source_tokenizer=False)
        return decoded

    def our_translation(self, text: str) -> str:
        return self.ours.translate([text], beam=1, max_length_a=1.0, max_length_b=15)[0]


@pytest.fixture(scope="module", params=SHAPES)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    home = tmp_path_factory.mktemp("imported")  # tests may come in an order in which a shape is needed again
    directory = write_marian(home / "model", **SHAPES[request.param])
    return Imported(directory, home / "run")


@pytest.fixture(scope="module")
def trained(folder: Path) -> Imported:
    """A model that transformers has trained on the five pairs, and the run imported from it."""
    directory = write_marian(folder / "trained")
    model = transformers.MarianMTModel.from_pretrained(directory)
    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    batch = tokenizer(SOURCE, text_target=TARGET, return_tensors="pt", padding=True)
    labels = batch["labels"]
    labels[labels == tokenizer.pad_token_id] = -100  # the loss ignores these
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(90):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    model.save_pretrained(directory)
    return Imported(directory, folder / "trained run", engine="auto")


@pytest.mark.parametrize("line", [GERMAN[0], "Hund 2024 Park! das gibt es nicht"])
def test_greedy_translations_are_those_of_generate(imported: Imported, line: str) -> None:
    tokenizer = imported.ours.tokenizers.source
    unknown = tokenizer.characters.unknown(line)
    known = tokenizer.characters.with_forms(line)
    # Both tokenizers know all characters that are left.
    characters = [character for character in known if character not in unknown]
    text = "".join(characters)
    result = imported.our_translation(text)
    assert result == imported.their_translation(text)


def test_a_trained_model_translates_as_before(trained: Imported) -> None:
    result = list(map(trained.our_translation, SOURCE))
    assert result == TARGET
    # Also of lines that it has not seen.
    mixed = []
    for line, following in itertools.pairwise(SOURCE):
        mixed.append(line[:5] + following[5:])
    for text in SOURCE + mixed:
        assert trained.our_translation(text) == trained.their_translation(text)


@pytest.mark.parametrize(("side", "argument"), [("source", "text"), ("target", "text_target")])
def test_tokens_are_those_of_marian_tokenizer(imported: Imported, side: str, argument: str) -> None:
    tokenizer = getattr(imported.ours.tokenizers, side)
    rows_of_tokens = getattr(imported, f"{side}_rows")
    for text in [*hostile_lines(200), *LOOKS_TAGGED]:
        tokens = tokenizer.encode(text)
        assert {PAD, BOS, EOS}.isdisjoint(tokens)
        rows = rows_of_tokens[[*tokens, EOS]]
        theirs = imported.their_tokenizer(**{argument: text})["input_ids"]
        assert rows.tolist() == theirs, repr(text)


def test_every_piece_of_the_original_is_kept(imported: Imported) -> None:
    """Also one whose id is decoder_start_token_id."""
    source_file = imported.directory / "vocab.json"
    target_file = imported.directory / "target_vocab.json"
    if not target_file.exists():
        target_file = source_file
    source, target = imported.ours.tokenizers
    check_pieces(source_file, source, imported.source_rows)
    check_pieces(target_file, target, imported.target_rows)


def check_pieces(file: Path, tokenizer: Tokenizer, rows: torch.Tensor) -> None:
    """Check that all pieces of a vocabulary have their rows."""
    vocabulary = json.loads(file.read_text())
    pieces = sorted(vocabulary.keys() - {*SPECIAL_PIECES})
    ids = [vocabulary[piece] for piece in pieces]
    result = rows[tokenizer.ids(pieces)].tolist()
    assert result == ids


@pytest.fixture(scope="module")
def multilingual(folder: Path) -> Path:
    return write_marian(folder / "multilingual", tags=(">>fra<<", ">>deu<<"))


@pytest.fixture(scope="module")
def to_french(folder: Path, multilingual: Path) -> Translator:
    """A multilingual model that was imported for one target language."""
    import_model(read_huggingface(multilingual), folder / "fra", target_tag="fra")
    return nmt.load(folder / "fra", engine="torch")


@pytest.fixture(scope="module")
def to_any(folder: Path, multilingual: Path) -> Translator:
    """A multilingual model that was imported for all of its target languages."""
    import_model(read_huggingface(multilingual), folder / "any")
    return nmt.load(folder / "any", engine="torch")


def test_a_target_tag_stands_before_every_line(to_french: Translator) -> None:
    assert to_french.target_language == "fra"
    source = to_french.tokenizers.source
    (fra,) = source.ids([">>fra<<"])
    # What looks like a tag is text.
    for text in ("Ein Hund.", ">>deu<<Ein Hund."):
        assert source.encode(text) == [fra, *source.encode_untagged(text)]
    assert source.encode("") == source.encode("\ufeff") == []
    _, tokens_of_words = source.encode_words("Ein Hund.", [(0, 3), (4, 9)])
    assert tokens_of_words[:2] == [[], [0]], "the tag belongs to no word"


LONG = ">>deu<<" + "Hund " * 60
# A model, a long line, and the tag of its parts: for one language, a tag of the line is text.
PARTS = [("to_french", "Ein Hund läuft. " * 6, ">>fra<<"), ("to_french", LONG, ">>fra<<"), ("to_any", LONG, ">>deu<<")]


@pytest.mark.parametrize(("model", "text", "tag"), PARTS)
def test_every_part_of_a_long_line_has_the_tag_and_only_in_front(
    request: pytest.FixtureRequest, model: str, text: str, tag: str
) -> None:
    source = request.getfixturevalue(model).tokenizers.source
    parts = Encoding([Unit(1, text)], Tokenizers(source, source), 20, TranslationOptions()).requests
    assert len(parts) > 3
    for part in parts:
        assert len(part.tokens) <= 20
        first, *others = source.pieces(part.tokens)
        assert first == tag
        assert {">>fra<<", ">>deu<<"}.isdisjoint(others)


def test_an_import_without_a_target_tag_warns(folder: Path, multilingual: Path) -> None:
    done = run_nmt("import", multilingual, "-o", folder / "warned")
    (warning,) = [line for line in err_lines(done) if "tag" in line]
    assert "several languages" in warning
    assert warning.endswith("--target-tag; it has deu, fra")


def test_without_a_target_tag_each_line_brings_its_own(to_any: Translator) -> None:
    source = to_any.tokenizers.source
    fra, deu = source.ids([">>fra<<", ">>deu<<"])
    plain = source.encode_untagged("Ein Hund.")
    assert source.encode("Ein Hund.") == plain
    assert source.encode(">>fra<<Ein Hund.") == [fra, *plain]
    assert source.encode(">>deu<<Ein Hund.") == [deu, *plain]
    tokens, tokens_of_words = source.encode_words(">>deu<< Ein Hund.", [(8, 11), (12, 17)])
    assert tokens == [deu, *plain]
    assert tokens_of_words[:2] == [[], [0]], "the tag belongs to no word"
    assert to_any.translate([">>deu<< "]) == [""]


def test_a_target_language_can_be_chosen_of_those_that_there_are(to_any: Translator) -> None:
    assert to_any.to("") is to_any
    (fra,) = to_any.tokenizers.source.ids([">>fra<<"])
    source = to_any.to("eng-fra").tokenizers.source
    assert source.encode("Ein Hund.")[0] == fra
    with pytest.raises(ConfigError, match="the model does not translate ita") as caught:
        to_any.to("ita")
    assert caught.value.hint == "it translates fra, deu"


def test_a_tag_that_the_model_lacks_is_refused(folder: Path, multilingual: Path) -> None:
    done = run_nmt("import", multilingual, "-o", folder / "none", "--target-tag", "ita")
    assert "it has deu, fra" in one_clear_error(done, 2, "no target tag 'ita'")
    model = spm(ENGLISH, unk_id=1, bos_id=2, eos_id=3, pad_id=0)
    with pytest.raises(ModelError, match="no tag >>ita<<"):
        Tokenizer(model, target_tag="ita")


def test_a_wrong_language_is_refused(folder: Path, multilingual: Path) -> None:
    with pytest.raises(ConfigError, match=r"--target-lang: .* input should be a language code such as de"):
        import_model(read_huggingface(multilingual), folder / "none", target_lang="../x")


def test_the_command_makes_a_run_like_any_other(folder: Path, trained: Imported) -> None:
    shutil.rmtree(folder / "runs", ignore_errors=True)
    done = run_nmt("import", trained.directory, "-o", "runs/opus", cwd=folder)
    assert any("checked" in line for line in err_lines(done))
    files = {path.name for path in (folder / "runs/opus").iterdir()}
    tokenizers = {"tokenizer.src.model", "tokenizer.tgt.model"}
    assert files == {"checkpoints", "config.yaml", "manifest.json", "model.safetensors", *tokenizers}
    # It is translated with and told about.
    source = folder / "new.de"
    source.write_text("\n".join(SOURCE))
    translated = run_nmt("translate", "--beam", "1", "-i", source, cwd=folder)
    assert out_lines(translated) == TARGET
    told = "\n".join(out_lines(run_nmt("info", cwd=folder)))
    assert "languages: {source: de, target: en}" in told
    assert re.search("imported: .*trained", told)
    # It is not overwritten, and its training data is unknown.
    again = run_nmt("import", trained.directory, "-o", "runs/opus", cwd=folder)
    one_clear_error(again, 2, "exists already")
    train = run_nmt("train", "runs/opus/config.yaml", cwd=folder)
    one_clear_error(train, 2)


def test_an_import_whose_log_probs_differ_is_refused(
    trained: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "sines_first", torch.arange)
    with pytest.raises(NmtError, match="the original's log-probabilities differ from the model's by"):
        import_model(read_huggingface(trained.directory), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_without_transformers_a_warning_says_that_nothing_is_compared(
    trained: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    import_model(read_huggingface(trained.directory), tmp_path / "run")
    assert "transformers is not installed" in caplog.text


def test_export_of_an_import_is_the_original_to_transformers(trained: Imported, tmp_path: Path) -> None:
    to_huggingface(trained.ours, tmp_path / "again")
    for name in ("source.spm", "target.spm"):
        exported = (tmp_path / "again" / name).read_bytes()
        assert exported == (trained.directory / name).read_bytes()
    again = Imported(tmp_path / "again", tmp_path / "run")
    result = list(map(again.their_translation, SOURCE))
    assert result == TARGET
    assert again.ours.translate(SOURCE, beam=1) == TARGET


@pytest.mark.parametrize(
    ("positions", "expected"), [("", ("marian", "zero", 1e-6)), ("huggingface", ("sinusoidal", "bos", 1e-5))]
)
def test_a_decoder_that_starts_with_zeros_has_the_positions_of_marian(
    positions: str, expected: tuple[str, str, float], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As models that were converted from Marian; the comparison with transformers needs its own positions."""
    directory = write_marian(tmp_path / "model")
    weights = load_file(directory / "model.safetensors")
    weights["model.shared.weight"][-1] = 0  # PAD
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    caplog.set_level("INFO")
    import_model(read_huggingface(directory), tmp_path / "run", positions=positions)
    model = nmt.load(tmp_path / "run", engine="torch").config.model
    assert (model.positions, model.start, model.norm_epsilon) == expected
    assert "with the positions of huggingface, log-probabilities differ from transformers' by at most" in caplog.text
