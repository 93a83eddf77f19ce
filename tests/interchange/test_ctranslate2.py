"""Export to CTranslate2: it finds our search's translations for every architecture; a failed export leaves nothing."""

from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from conftest import FiveRun, err_lines, file_bytes, model_of, one_clear_error, run_nmt
from models import fresh_translator as fresh
from models import random_translator as make
from models import search_with_bans

from nmt.errors import InputError, ModelError, NmtError
from nmt.interchange import ctranslate2 as module
from nmt.interchange.ctranslate2 import QUANTIZATIONS, to_ctranslate2
from nmt.text import EOS
from nmt.translate.loading import load

CHOICES: list[dict[str, Any]] = [
    {"norm": "pre", "activation": "relu", "positions": "sinusoidal"},
    {"norm": "post", "activation": "gelu", "positions": "learned", "d_model": 15, "n_heads": 5, "d_ff": 7},
    {"positions": "rotary", "norm": "post", "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 3},
    {"positions": "none", "n_heads": 1, "max_positions": 8, "activation": "silu"},
    {"tied_embeddings": "decoder", "joint": False, "n_encoder_layers": 3, "n_decoder_layers": 1},
    {"tied_embeddings": "none", "joint": False, "norm": "post"},
]


@pytest.mark.parametrize("choices", CHOICES, ids=lambda choices: " ".join(map(str, choices.values())))
def test_greedy_translations_are_ours_and_log_probs_were_compared(choices: dict[str, Any], tmp_path: Path) -> None:
    """At the limit of 8 tokens we force EOS, and CTranslate2 cuts."""
    translator = make(**choices)
    to_ctranslate2(translator, tmp_path / "out")
    engine, (source, target) = ctranslate2.Translator(str(tmp_path / "out")), translator.tokenizers
    limits = {"max_decoding_length": 7, "min_decoding_length": 0}
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(4, len(source), (n,), generator=generator).tolist() for n in (1, 4, 7)]
    options = translator.with_options(beam=1, min_length=0, max_length_a=0.0, max_length_b=8)
    for row, best in zip(rows, search_with_bans(translator, rows, options), strict=True):
        (theirs,) = engine.translate_batch([source.pieces(row)], beam_size=1, return_end_token=True, **limits)
        found = target.ids(theirs.hypotheses[0])
        assert best.tokens in (found, [*found, EOS])


@pytest.mark.parametrize("tied", ["all", "none"])
def test_each_quantization_loads_and_leaves_the_model_unchanged(tied: str, tmp_path: Path) -> None:
    translator = make(tied_embeddings=tied)
    model_of(translator).projection.weight.data /= 2  # CPUs without AVX-512 multiply int8 less exactly
    before = {name: x.clone() for name, x in model_of(translator).state_dict().items()}
    n_bytes = {}
    for kind in QUANTIZATIONS:
        to_ctranslate2(translator, tmp_path / kind, kind)
        n_bytes[kind] = (tmp_path / kind / "model.bin").stat().st_size
        ctranslate2.Translator(str(tmp_path / kind))
    assert n_bytes["int8"] < n_bytes["float16"] == n_bytes["bfloat16"] < 0.6 * n_bytes["float32"]
    assert all(torch.equal(x, before[name]) for name, x in model_of(translator).state_dict().items())


def test_an_export_replaces_another_if_its_log_probs_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    to_ctranslate2(make(joint=False, tied_embeddings="none"), out)
    to_ctranslate2(make(), out)
    before = file_bytes(out)
    assert "source_vocabulary.json" not in before, "nothing of the first is left"
    monkeypatch.setattr(module, "ACTIVATIONS", dict.fromkeys(module.ACTIVATIONS, "GELU"))
    with pytest.raises(NmtError, match="CTranslate2's float32 log-probabilities differ from the model's by") as error:
        to_ctranslate2(make(), out, "int8")
    assert error.value.exit_code == 1
    assert list(tmp_path.iterdir()) == [out]
    assert file_bytes(out) == before


def test_wrong_quantization_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown quantization 'int4'"):
        to_ctranslate2(make(), tmp_path / "out", "int4")


def test_an_unsupported_setting_is_refused_by_name(tmp_path: Path) -> None:
    """The tests of the engine have the others."""
    with pytest.raises(InputError, match=r"^CTranslate2 does not support model\.attention=additive$") as error:
        to_ctranslate2(fresh(attention="additive"), tmp_path / "out")
    assert error.value.hint == "translate with nmt itself"
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_it_has_checked_and_written(five_run: FiveRun, tmp_path: Path) -> None:
    export = ["export", "-m", five_run.model_file, "--to"]
    done = run_nmt(*export, "ctranslate2", "-o", tmp_path / "out", "--quantization", "int8")
    checked, written = err_lines(done)
    assert checked.startswith("checked: log-probabilities differ from the model's by at most ")
    assert "(int8)" in checked
    assert (done.stdout, written) == (b"", f"written to {tmp_path}/out")
    assert not any(str(five_run.home).encode() in content for content in file_bytes(tmp_path).values())
    one_clear_error(run_nmt(*export, "tflite", "-o", tmp_path / "other"), 2, "'tflite' is not one of")


def test_an_export_knows_the_learned_characters_and_the_limit(tmp_path: Path) -> None:
    translator = make(decode={"max_length_a": 4.25, "max_length_b": 33})
    translator.tokenizers = translator.tokenizers.with_learned("€ə\r")
    to_ctranslate2(translator, tmp_path / "out")
    exported = load(tmp_path / "out")
    assert exported.unknown("€ə₪") == {"₪"}
    assert exported.options.limit(10) == 43 + 33
    to_ctranslate2(make(), tmp_path / "out")
    assert load(tmp_path / "out").tokenizers.source.learned is None


def test_characters_of_an_export_that_are_no_text_are_refused(tmp_path: Path) -> None:
    translator = make()
    translator.tokenizers = translator.tokenizers.with_learned("€")
    to_ctranslate2(translator, tmp_path / "out")
    (tmp_path / "out" / "characters.txt").write_bytes(b"\xff")
    with pytest.raises(ModelError, match=r"characters\.txt is damaged$"):
        load(tmp_path / "out")
