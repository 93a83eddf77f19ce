"""Import of Marian models: nmt's tokens and translations equal those of transformers."""

import itertools
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SOAK, SOURCE, TARGET, err_lines, one_clear_error, out_lines, run_nmt
from models import hostile_lines, random_translator

import nmt
from nmt.errors import ConfigError, ModelError, NmtError
from nmt.interchange import marian
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.interchange.huggingface import to_huggingface
from nmt.interchange.marian import import_marian
from nmt.interchange.marian_files import read_settings
from nmt.text import BOS, EOS, PAD, UNK
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.translate.encode import Encoding
from nmt.translate.translator import Translator
from nmt.translate.units import Unit

transformers = pytest.importorskip("transformers", reason="pip install 'nmt-trainer[huggingface]'")
from marian_models import ENGLISH, GERMAN, spm, write_marian  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # a warning about sacremoses, which is not used

OPUS = {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8}
OPUS |= {"decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "max_position_embeddings": 512}
APART, UNTIED = {"share_encoder_decoder_embeddings": False}, {"tie_word_embeddings": False}
TURNED = {"source_spm": spm(ENGLISH + TARGET), "target_spm": spm(GERMAN + SOURCE)}
SHAPES: dict[str, dict[str, Any]] = {
    "as OPUS-MT": {},
    "output apart": UNTIED,
    "all apart, gelu": {**APART, **UNTIED, "activation_function": "gelu", "encoder_layers": 1, "decoder_layers": 3},
    "two vocabularies, start is a piece of the target": {**APART, "separate": True, **TURNED},
    "tags, pieces that the vocabulary lacks": {"tags": (">>fra<<", ">>deu<<"), "without": ("▁the", "er", "。")},
    **({"OPUS-MT": OPUS, "OPUS-MT, untied": {**OPUS, **UNTIED}} if SOAK else {}),
}


class Pair:
    """A model of transformers and the run imported from it; the import has compared their log-probabilities."""

    def __init__(self, directory: Path, run: Path, engine: Any = "torch") -> None:
        self.directory, self.run = directory, run
        import_marian(directory, run)
        self.theirs = transformers.MarianMTModel.from_pretrained(directory, use_safetensors=True).eval()
        self.their_tokenizer = transformers.MarianTokenizer.from_pretrained(directory, split_special_tokens=True)
        self.ours: Translator = nmt.load(run, engine=engine)
        bias = self.theirs.final_logits_bias
        sides = marian.read_sides(directory, read_settings(directory), self.their_tokenizer.init_kwargs, bias)
        self.source_rows, self.target_rows = (torch.tensor(side.rows) for side in sides)

    def their_ids(self, text: str, *, target: bool = False) -> list[int]:
        given = {"text_target": text} if target else {"text": text}
        ids: list[int] = self.their_tokenizer(**given)["input_ids"]
        assert ids[-1] == self.theirs.config.eos_token_id
        return ids[:-1]

    def our_ids(self, text: str, *, target: bool = False) -> list[int]:
        """Our tokens of a text, as ids of the original vocabulary."""
        tokenizers, rows = self.ours.tokenizers, self.target_rows if target else self.source_rows
        tokens = (tokenizers.target if target else tokenizers.source).encode(text)
        assert min(tokens, default=UNK) not in (PAD, BOS, EOS)
        found: list[int] = rows[torch.tensor(tokens, dtype=torch.long)].tolist()
        return found

    def their_translation(self, text: str) -> str:
        """Greedy, by `generate`."""
        ids, banned = self.their_ids(text), [[int(self.target_rows[i])] for i in (PAD, UNK)]
        options = {"num_beams": 1, "do_sample": False, "max_new_tokens": len(ids) + 16, "bad_words_ids": banned}
        (found,) = self.theirs.generate(torch.tensor([[*ids, self.theirs.config.eos_token_id]]), **options)
        decoded: str = self.their_tokenizer.decode(found[1:], skip_special_tokens=True, use_source_tokenizer=False)
        return decoded

    def our_translation(self, text: str) -> str:
        return self.ours.translate([text], beam=1, max_length_a=1.0, max_length_b=15)[0]


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    home = tmp_path_factory.mktemp("pair")  # tests may come in an order in which a shape is needed again
    return Pair(write_marian(home / "model", **SHAPES[request.param]), home / "run")


@pytest.fixture(scope="module")
def trained(folder: Path) -> Pair:
    """A model that transformers has trained on the five pairs, and the run imported from it."""
    directory = write_marian(folder / "trained")
    model = transformers.MarianMTModel.from_pretrained(directory)
    tokenizer = transformers.MarianTokenizer.from_pretrained(directory)
    batch = tokenizer(SOURCE, text_target=TARGET, return_tensors="pt", padding=True)
    batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(90):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(directory)
    return Pair(directory, folder / "trained run", engine="auto")


def test_greedy_translations_are_those_of_generate(pair: Pair) -> None:
    tokenizer = pair.ours.tokenizers.source
    for line in (GERMAN[0], "Hund 2024 Park! das gibt es nicht"):
        known = tokenizer.with_known_characters(line)
        text = "".join(character for character in known if character not in tokenizer.unknown(line))
        assert pair.our_translation(text) == pair.their_translation(text)


def test_a_trained_model_translates_as_before(trained: Pair) -> None:
    mixed = [f"{one[:5]}{other[5:]}" for one, other in itertools.pairwise(SOURCE)]
    found = {text: trained.our_translation(text) for text in SOURCE + mixed}
    assert found == {text: trained.their_translation(text) for text in SOURCE + mixed}
    assert [found[text] for text in SOURCE] == TARGET


TAGGED = [f"{a}{tag}{b}" for tag in (">>fra<<", ">>xyz<<") for a in ("", " ", "a") for b in ("", " the.")]


def test_tokens_are_those_of_marian_tokenizer(pair: Pair) -> None:
    for text in [*hostile_lines(200), *TAGGED]:
        assert pair.our_ids(text) == pair.their_ids(text), repr(text)
        assert pair.our_ids(text, target=True) == pair.their_ids(text, target=True), repr(text)


def test_every_piece_of_the_original_is_kept(pair: Pair) -> None:
    """Also one whose id is decoder_start_token_id."""
    vocabularies = [json.loads(path.read_text()) for path in sorted(pair.directory.glob("*vocab.json"))]
    for target in (False, True):
        vocabulary = vocabularies[0 if target else -1]  # target_vocab.json is the first, if it exists
        pieces = sorted(vocabulary.keys() - {*marian.SPECIAL_PIECES})
        tokenizer = pair.ours.tokenizers.target if target else pair.ours.tokenizers.source
        rows = (pair.target_rows if target else pair.source_rows)[torch.tensor(tokenizer.ids(pieces))]
        assert rows.tolist() == [vocabulary[piece] for piece in pieces]


@pytest.fixture(scope="module")
def multilingual(folder: Path) -> Path:
    return write_marian(folder / "multilingual", tags=(">>fra<<", ">>deu<<"))


def test_a_target_tag_stands_before_every_line_and_every_part_of_a_long_line(folder: Path, multilingual: Path) -> None:
    import_marian(multilingual, folder / "fra", target_tag="fra")
    translator = nmt.load(folder / "fra", engine="torch")
    source = translator.tokenizers.source
    assert translator.target_language == "fra"
    untagged = replace(source, target_tag="")
    fra, deu = source.ids([">>fra<<", ">>deu<<"])
    plain = source.encode_untagged("Ein Hund.")
    assert source.encode("Ein Hund.") == [fra, *plain]
    tagged = ">>deu<<Ein Hund."
    assert source.encode(tagged) == [fra, *source.encode_untagged(tagged)]
    assert translator.to("deu").tokenizers.source.encode("Ein Hund.") == [deu, *plain]
    assert source.encode("") == source.encode("\ufeff") == []
    assert source.encode_words("Ein Hund.", [(0, 3), (4, 9)])[1][:2] == [[], [0]]
    long, with_tag = "Ein Hund läuft. " * 6, ">>deu<<" + "Hund " * 60
    for text, tag, side in ((long, fra, source), (with_tag, fra, source), (with_tag, deu, untagged)):
        parts = Encoding([Unit(1, text)], Tokenizers(side, side), 20, translator.options, " ").requests
        assert len(parts) > 3
        assert all(part.tokens[0] == tag and len(part.tokens) <= 20 for part in parts)
        assert all({fra, deu}.isdisjoint(part.tokens[1:]) for part in parts)


def test_without_a_target_tag_which_is_warned_of_each_line_brings_its_own(folder: Path, multilingual: Path) -> None:
    (warning,) = [line for line in err_lines(run_nmt("import", multilingual, "-o", folder / "each")) if "tag" in line]
    assert "several languages" in warning
    assert warning.endswith("--target-tag; it has deu, fra")
    translator = nmt.load(folder / "each", engine="torch")
    source = translator.tokenizers.source
    fra, deu = source.ids([">>fra<<", ">>deu<<"])
    plain = source.encode_untagged("Ein Hund.")
    for tag, tokens in (("", []), (">>fra<<", [fra]), (">>deu<<", [deu])):
        assert source.encode(f"{tag}Ein Hund.") == [*tokens, *plain]
    tokens, words = source.encode_words(">>deu<< Ein Hund.", [(8, 11), (12, 17)])
    assert tokens == [deu, *plain]
    assert (words[0], words[1], words[-1]) == ([], [0], [1])
    assert translator.to("") is translator
    assert translator.to("eng-fra").tokenizers.source.encode("Ein Hund.") == [fra, *plain]
    with pytest.raises(ConfigError, match="the model does not translate ita") as caught:
        translator.to("ita")
    assert caught.value.hint == "it translates fra, deu"


def test_a_tag_that_the_model_lacks_and_a_wrong_language_are_refused(folder: Path, multilingual: Path) -> None:
    done = run_nmt("import", multilingual, "-o", folder / "none", "--target-tag", "ita")
    assert "it has deu, fra" in one_clear_error(done, 2, "no target tag 'ita'")
    with pytest.raises(ModelError, match="no tag >>ita<<"):
        Tokenizer(spm(ENGLISH, unk_id=1, bos_id=2, eos_id=3, pad_id=0), target_tag="ita")
    with pytest.raises(ConfigError, match=r"--target-lang: .* input should be a language code such as de"):
        import_marian(multilingual, folder / "none", target_lang="../x")


def test_the_command_makes_a_run_like_any_other(folder: Path, trained: Pair) -> None:
    shutil.rmtree(folder / "runs", ignore_errors=True)
    imported = run_nmt("import", "trained", "-o", "runs/opus", cwd=folder)
    assert any("checked" in line for line in err_lines(imported))
    assert sorted(path.name for path in (folder / "runs/opus").iterdir()) == [
        *("checkpoints", "config.yaml", "manifest.json", "model.safetensors"),
        *("tokenizer.src.model", "tokenizer.tgt.model"),
    ]
    source, target = folder / "new.de", folder / "new.en"
    source.write_text("".join(f"{line}\n" for line in SOURCE))
    target.write_text("".join(f"{line}\n" for line in TARGET))
    assert out_lines(run_nmt("translate", "--beam", "1", "-i", source, cwd=folder)) == TARGET
    assert "BLEU = 100.00" in "\n".join(out_lines(run_nmt("eval", "--src", source, "--ref", target, cwd=folder)))
    told = "\n".join(out_lines(run_nmt("info", cwd=folder)))
    assert "languages: {source: de, target: en}" in told
    assert re.search("imported: .*trained", told)
    err_lines(run_nmt("explain", SOURCE[0], "-o", "page.html", cwd=folder))
    one_clear_error(run_nmt("import", "trained", "-o", "runs/opus", cwd=folder), 2, "exists already")
    one_clear_error(run_nmt("train", "runs/opus/config.yaml", cwd=folder), 2)


def test_an_import_whose_logits_differ_is_refused_and_one_without_transformers_is_not_checked(
    trained: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(marian, "sines_first", torch.arange)
        with pytest.raises(NmtError, match="the original's log-probabilities differ from the model's by"):
            import_marian(trained.directory, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setitem(sys.modules, "transformers", None)
    import_marian(trained.directory, tmp_path / "run")
    assert "transformers is not installed" in caplog.text


def test_export_of_an_import_is_the_original_to_transformers_and_ctranslate2(trained: Pair, tmp_path: Path) -> None:
    to_huggingface(trained.ours, tmp_path / "again")
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "again" / name).read_bytes() == (trained.directory / name).read_bytes()
    again = Pair(tmp_path / "again", tmp_path / "run")
    assert [again.their_translation(text) for text in SOURCE] == TARGET
    assert again.ours.translate(SOURCE, beam=1) == TARGET
    to_ctranslate2(trained.ours, tmp_path / "ct2")
    assert nmt.load(tmp_path / "ct2").translate(SOURCE, beam=1) == TARGET


def test_the_limit_and_the_learned_characters_survive_an_export_and_an_import(tmp_path: Path) -> None:
    translator = random_translator(norm="post", decode={"max_length_a": 3.5, "max_length_b": 21})
    translator.tokenizers = translator.tokenizers.with_learned("ə€")
    to_huggingface(translator, tmp_path / "hf")
    import_marian(tmp_path / "hf", tmp_path / "run")
    imported = nmt.load(tmp_path / "run", engine="torch")
    assert imported.options.limit(10) == 35 + 21
    assert imported.tokenizers.source.learned == "ə€"
    assert imported.unknown("ə€₪") == {"₪"}
    assert imported.translate(["书€"], beam=1) == translator.translate(["书€"], beam=1)


@pytest.mark.parametrize("ours", [None, [], {"learned_characters": 7}, {"learned_characters": "€\ud800"}], ids=str)
def test_what_others_wrote_in_place_of_our_settings_does_no_harm(tmp_path: Path, ours: object) -> None:
    to_huggingface(random_translator(norm="post"), tmp_path / "hf")
    file = tmp_path / "hf" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "nmt": ours}))
    import_marian(tmp_path / "hf", tmp_path / "run")
    imported = nmt.load(tmp_path / "run", engine="torch")
    assert imported.tokenizers.source.learned in (None, "€")
    assert imported.options.limit(10) == 25
