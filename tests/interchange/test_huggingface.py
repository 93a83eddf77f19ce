"""Export to Hugging Face: transformers computes our logits, ids and texts, can train the model and save it again."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, err_lines, file_bytes, model_of, one_clear_error, run_nmt
from models import fresh_translator, hostile_lines, random_translator, search_with_bans, write_run
from torch import Tensor

from nmt.config import TokenizerSettings
from nmt.errors import InputError, NmtError
from nmt.interchange import huggingface as module
from nmt.interchange.huggingface import to_huggingface
from nmt.model.transformer import Transformer
from nmt.text import EOS, PAD
from nmt.text.batches import pad_source
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.tokenizer_training import train_tokenizer
from nmt.translate.loading import load

transformers = pytest.importorskip("transformers", reason="no transformers: pip install '.[huggingface]'")
pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses", "ignore::DeprecationWarning")

CHOICES: list[dict[str, Any]] = [
    {"norm": "pre", "activation": "relu"},
    {"norm": "pre", "activation": "gelu", "positions": "learned", "d_model": 15, "n_heads": 5, "d_ff": 7},
    {"norm": "pre", "activation": "silu", "positions": "none", "n_heads": 1},
    {"norm": "post", "activation": "relu", "tied_embeddings": "all"},
    {"norm": "post", "activation": "gelu", "tied_embeddings": "decoder", "n_encoder_layers": 1, "n_decoder_layers": 3},
    {"norm": "post", "activation": "silu", "tied_embeddings": "none", "joint": False},
]
UNSUPPORTED: dict[str, Any] = {
    "architecture": "rnn",
    "attention": "dot",
    "positions": "rotary",
    "tied_embeddings": "none",
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where the export is written to."""
    return tmp_path / "out"


def loaded(path: Path) -> tuple[Any, Any]:
    """Load model and tokenizer in the usual way."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(path)


def force_eos(tokens: Tensor, log_probs: Tensor) -> Tensor:
    """Force EOS as the 20th token, with the model's log-probability, as nmt does, not with 0."""
    if tokens.size(1) != 20:
        return log_probs
    others = torch.arange(log_probs.size(1)) != EOS
    return log_probs.masked_fill(others, -torch.inf)


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_searches_find_our_tokens(choices: dict[str, Any], beam: int, out: Path) -> None:
    translator = random_translator(**choices)
    to_huggingface(translator, out)
    theirs, _ = loaded(out)
    generator = torch.Generator().manual_seed(4)
    n_pieces = len(translator.tokenizers.source)
    sources = []
    for length in range(1, 13):
        random_tokens = torch.randint(4, n_pieces, (length,), generator=generator)
        sources.append(random_tokens.tolist())

    options = translator.with_options(beam=beam, max_length_a=0.0, max_length_b=20)
    ours = [best.tokens for best in search_with_bans(translator, sources, options)]
    src = pad_source(sources)
    limits = {"max_length": 21, "forced_eos_token_id": None, "logits_processor": [force_eos]}
    with torch.inference_mode():
        found = theirs.generate(src, attention_mask=src != PAD, num_beams=beam, **limits)
    for row, tokens in zip(found.tolist(), ours, strict=True):
        n_tokens = row.index(EOS)
        assert row[1 : n_tokens + 1] == tokens  # without BOS and padding


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_transformers_can_save_an_export_again(choices: dict[str, Any], out: Path, tmp_path: Path) -> None:
    translator = random_translator(**choices)
    to_huggingface(translator, out)
    for part in loaded(out):
        part.save_pretrained(tmp_path / "again")
    theirs, tokenizer = loaded(tmp_path / "again")
    module.check_pieces(translator, tokenizer)
    module.check_log_probs(translator, cast(Transformer, model_of(translator)), theirs)
    text = "I teach English at 学校 ."
    source, target = translator.tokenizers
    assert tokenizer(text).input_ids == [*source.encode(text), EOS]
    assert tokenizer(text_target=text).input_ids == [*target.encode(text), EOS]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_token_ids_are_ours_on_hostile_lines(kind: Any, byte_fallback: bool, tmp_path: Path) -> None:
    lines = [*TARGET, "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ <>/0123456789"]
    settings = TokenizerSettings(type=kind, vocab_size=400, byte_fallback=byte_fallback)
    ours = Tokenizer(train_tokenizer(lines, settings))
    module.write_tokenizers(tmp_path, Tokenizers(ours, ours), fresh_translator().config)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    for line in hostile_lines(200):
        # MarianTokenizer takes >>fra<< as the target language.
        if line.startswith(">>") and "<<" in line:
            continue
        tokens = ours.encode(line)
        assert theirs(line).input_ids == [*tokens, EOS], repr(line)
        assert theirs(text_target=line).input_ids == [*tokens, EOS]
        text = ours.decode(tokens).replace("\u2581", " ").strip()
        assert theirs.decode(tokens, skip_special_tokens=True) == text


def test_directory_has_settings_of_the_search(out: Path, tmp_path: Path) -> None:
    decode = {"beam": 3, "alpha": 0.6, "min_length": 2, "max_length_a": 2.0, "max_length_b": 7}
    run = write_run(random_translator(decode=decode), tmp_path / "run")
    to_huggingface(load(run.path, engine="torch"), out)
    files = file_bytes(out)
    assert files.keys() <= module.FILES
    settings = json.loads(files["generation_config.json"])
    assert settings["num_beams"] == 3
    assert settings["length_penalty"] == 0.6
    assert settings["min_new_tokens"] == 2
    assert settings["max_length"] == 2 * (7 + 1) + 7 + 1


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_pegasus_cannot_hold_is_refused_by_name(name: str, out: Path) -> None:
    translator = fresh_translator(**{name: UNSUPPORTED[name]})
    message = f"PegasusForConditionalGeneration does not support model.{name}={UNSUPPORTED[name]}$"
    with pytest.raises(InputError, match=message):
        to_huggingface(translator, out)
    assert not out.exists()


def test_what_marian_cannot_hold_is_refused_by_name(out: Path) -> None:
    translator = fresh_translator(positions="learned", norm="post")
    with pytest.raises(InputError, match=r"MarianMTModel does not support model\.positions=learned$"):
        to_huggingface(translator, out)
    assert not out.exists()


@pytest.mark.parametrize(("key", "value"), [("nfkc_source", True), ("target_tag", "fra")])
def test_what_the_tokenizer_cannot_do_is_refused_by_name(key: str, value: object, out: Path) -> None:
    translator = fresh_translator()
    data = translator.config.data.model_copy(update={key: value})
    translator.config = translator.config.model_copy(update={"data": data})
    written = str(value).lower()
    with pytest.raises(InputError, match=rf"does not support data\.{key}={written}"):
        to_huggingface(translator, out)


def test_an_export_of_other_log_probs_is_refused(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to_huggingface(random_translator(norm="post"), out)
    before = file_bytes(tmp_path)
    monkeypatch.setattr(module, "sines_first", torch.arange)
    with pytest.raises(NmtError, match="log-probabilities differ from the model's by "):
        to_huggingface(random_translator(norm="post"), out)
    assert file_bytes(tmp_path) == before


def test_an_export_of_other_pieces_is_refused(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = train_tokenizer(["abc"], TokenizerSettings(type="char", vocab_size=300))
    monkeypatch.setattr(module, "without_vocabulary", lambda _: other)
    with pytest.raises(NmtError, match="MarianTokenizer gives other pieces to "):
        to_huggingface(random_translator(norm="post"), out)
    assert file_bytes(tmp_path) == {}


def test_the_command_exports_a_run(five_run: FiveRun, out: Path) -> None:
    done = run_nmt("export", "-m", five_run.run, "--to", "huggingface", "-o", out)
    assert done.stdout == b""
    checked, written = err_lines(done)
    assert checked.startswith("checked: pieces are the same, log-probabilities differ by at most ")
    assert written == f"written to {out}"
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: translation\n")
    assert 'AutoModelForSeq2SeqLM.from_pretrained("out")' in card
    content = b"".join(file_bytes(out).values())
    assert str(five_run.home).encode() not in content
    # transformers translates.
    theirs, tokenizer = loaded(out)
    inputs = tokenizer(SOURCE, return_tensors="pt", padding=True)
    with torch.inference_mode():
        found = theirs.generate(**inputs)
    assert tokenizer.batch_decode(found, skip_special_tokens=True) == TARGET


@pytest.mark.parametrize("option", ["--quantization=int8", "--shortlist"])
def test_what_is_for_ctranslate2_is_refused(five_run: FiveRun, out: Path, option: str) -> None:
    done = run_nmt("export", "-m", five_run.run, "--to", "huggingface", "-o", out, option)
    name, _, _ = option.partition("=")
    one_clear_error(done, 2, f"{name} does not apply to huggingface")
    assert not out.exists()
