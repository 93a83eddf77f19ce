"""Export to Hugging Face: transformers computes our logits, ids and texts, can train the model and save it again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TARGET, FiveRun, err_lines, file_bytes, one_clear_error, run_nmt
from models import fresh_translator, hostile_lines, random_translator, search_with_bans, write_run
from torch import Tensor

from nmt.config import TokenizerSettings
from nmt.errors import InputError, NmtError
from nmt.interchange import huggingface as module
from nmt.interchange.huggingface import to_huggingface
from nmt.text import EOS, PAD
from nmt.text.batches import collate
from nmt.text.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from nmt.translate.translator import Translator, load

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
by_name = pytest.mark.parametrize("choices", CHOICES, ids=lambda choices: " ".join(map(str, choices.values())))


def loaded(path: Path) -> tuple[Any, Any]:
    """Load model and tokenizer in the usual way."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(path)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(path)


@by_name
def test_searches_are_ours_and_log_probs_also_after_saving_again(choices: dict[str, Any], tmp_path: Path) -> None:
    translator = random_translator(**choices)
    to_huggingface(translator, tmp_path / "out")
    theirs, tokenizer = loaded(tmp_path / "out")
    check_searches(theirs, translator)
    theirs.save_pretrained(tmp_path / "again")
    tokenizer.save_pretrained(tmp_path / "again")
    theirs, tokenizer = loaded(tmp_path / "again")
    module.check_pieces(translator, tokenizer)
    module.check_log_probs(translator, module.holdable_model(translator), theirs)
    text = "I teach English at 学校 ."
    assert tokenizer(text).input_ids == [*translator.tokenizers.source.encode(text), EOS]
    assert tokenizer(text_target=text).input_ids == [*translator.tokenizers.target.encode(text), EOS]


def check_searches(theirs: Any, translator: Translator) -> None:
    """Greedy search and beams find our tokens; EOS is forced with the model's log-probability, as we do, not with 0."""
    generator = torch.Generator().manual_seed(4)
    n = len(translator.tokenizers.source)
    rows = [torch.randint(4, n, (length,), generator=generator).tolist() for length in range(1, 13)]
    src = collate(rows, rows, list(range(len(rows)))).src
    limits = {"max_length": 21, "forced_eos_token_id": None, "logits_processor": [force_eos]}
    for beam in (1, 5):
        options = translator.with_options(beam=beam, max_length_a=0.0, max_length_b=20)
        ours = [best.tokens for best in search_with_bans(translator, rows, options)]
        with torch.inference_mode():
            found = theirs.generate(src, attention_mask=src != PAD, num_beams=beam, **limits)
        assert [row[1 : row.index(EOS) + 1] for row in found.tolist()] == ours


def force_eos(tokens: Tensor, log_probs: Tensor) -> Tensor:
    """Force EOS as the 20th token."""
    others = torch.arange(log_probs.size(1)) != EOS
    return log_probs.masked_fill(others, -torch.inf) if tokens.size(1) == 20 else log_probs


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_token_ids_are_ours_on_hostile_lines(kind: Any, byte_fallback: bool, tmp_path: Path) -> None:
    translator = fresh_translator()
    lines = [*TARGET, "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ <>/0123456789"]
    settings = TokenizerSettings(type=kind, vocab_size=400, byte_fallback=byte_fallback)
    side = Tokenizer(train_tokenizer(lines, settings).model)
    module.write_tokenizers(tmp_path, Tokenizers(side, side), translator.config)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path)
    for line in hostile_lines(200):
        if not (line.startswith(">>") and "<<" in line):  # MarianTokenizer interprets >>fra<< as the target language
            assert tokenizer(line).input_ids == [*side.encode(line), EOS], repr(line)
            assert tokenizer(text_target=line).input_ids == [*side.encode(line), EOS]
            ids = side.encode(line)
            assert tokenizer.decode(ids, skip_special_tokens=True) == side.decode(ids).replace("\u2581", " ").strip()


def test_directory_has_settings_of_the_search_and_no_paths(tmp_path: Path) -> None:
    decode = {"beam": 3, "alpha": 0.6, "min_length": 2, "max_length_a": 2.0, "max_length_b": 7}
    run = write_run(random_translator(decode=decode), tmp_path / "run")
    to_huggingface(load(run.path, engine="torch"), tmp_path / "deep" / "out")
    out = tmp_path / "deep" / "out"
    assert set(file_bytes(out)) <= module.FILES
    found = json.loads((out / "generation_config.json").read_text())
    assert [found[key] for key in ("num_beams", "length_penalty", "min_new_tokens")] == [3, 0.6, 2]
    assert found["max_length"] == 2 * (7 + 1) + 7 + 1
    assert not any(str(tmp_path).encode() in content for content in file_bytes(out).values())
    to_huggingface(load(run.path, engine="torch"), out)  # replaces the first export
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]


def test_an_export_says_that_it_was_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "nmt"):
        to_huggingface(fresh_translator(), tmp_path / "out")
    (checked,) = caplog.messages
    assert checked.startswith("checked: pieces are the same, log-probabilities differ by at most ")


@pytest.mark.parametrize(
    ("choices", "named"),
    [
        ({"architecture": "rnn"}, "PegasusForConditionalGeneration does not support model.architecture=rnn"),
        ({"attention": "dot"}, "model.attention=dot"),
        ({"positions": "rotary"}, "model.positions=rotary"),
        ({"tied_embeddings": "none"}, "PegasusForConditionalGeneration does not support model.tied_embeddings=none"),
        ({"positions": "learned", "norm": "post"}, "MarianMTModel does not support model.positions=learned"),
    ],
)
def test_what_the_classes_cannot_hold_is_refused_by_name(choices: dict[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{named}$"):
        to_huggingface(fresh_translator(**choices), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("key", "value"), [("nfkc_source", True), ("target_tag", "fra")])
def test_what_the_tokenizer_cannot_do_is_refused_by_name(key: str, value: object, tmp_path: Path) -> None:
    translator = fresh_translator()
    data = translator.config.data.model_copy(update={key: value})
    translator.config = translator.config.model_copy(update={"data": data})
    with pytest.raises(InputError, match=rf"MarianTokenizer does not support data\.{key}={str(value).lower()}"):
        to_huggingface(translator, tmp_path / "out")


def test_an_export_of_other_log_probs_or_pieces_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    translator = random_translator(norm="post")
    to_huggingface(translator, out)
    before = file_bytes(out)
    monkeypatch.setattr(module, "sines_first", torch.arange)
    with pytest.raises(NmtError, match="log-probabilities differ from the model's by "):
        to_huggingface(translator, out)
    monkeypatch.undo()
    other = Tokenizer(train_tokenizer(["abc"], TokenizerSettings(type="char", vocab_size=300)).model)
    monkeypatch.setattr(module, "without_vocabulary", lambda _: other.model)
    with pytest.raises(NmtError, match="MarianTokenizer gives other pieces to "):
        to_huggingface(translator, out)
    assert list(tmp_path.iterdir()) == [out]
    assert file_bytes(out) == before


def test_command_exports_a_run_with_its_scores(five_run: FiveRun, tmp_path: Path) -> None:
    run, out = five_run.copy_run(tmp_path / "run"), tmp_path / "out"
    assert run_nmt("eval", "-m", run, "-q").returncode == 0
    done = run_nmt("export", "-m", run, "--to", "huggingface", "-o", out)
    assert done.stdout == b""
    checked, written = err_lines(done)
    assert checked.startswith("checked: pieces are the same, log-probabilities differ by at most ")
    assert written == f"written to {out}"
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: translation\n")
    engine = load(run).engine.name
    assert f"5 lines of `train.zh`, `train.en`, beam 5, engine {engine}:\n\n```text\nBLEU = 100.00  (95 %: " in card
    assert not any(str(five_run.home).encode() in content for content in file_bytes(out).values())
    theirs, tokenizer = loaded(out)
    inputs = tokenizer(five_run.source_file.read_text(encoding="utf-8").splitlines(), return_tensors="pt", padding=True)
    with torch.inference_mode():
        assert tokenizer.batch_decode(theirs.generate(**inputs), skip_special_tokens=True) == TARGET


def test_what_is_for_ctranslate2_is_refused(five_run: FiveRun, tmp_path: Path) -> None:
    to = ["export", "-m", five_run.run, "--to", "huggingface", "-o", tmp_path / "out"]
    for option, *value in (["--quantization", "int8"], ["--shortlist"]):
        one_clear_error(run_nmt(*to, option, *value), 2, f"{option} does not apply to huggingface")
    assert not (tmp_path / "out").exists()
