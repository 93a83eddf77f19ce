"""Export to CTranslate2: it finds our search's translations for every architecture; a failed export leaves nothing."""

from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from conftest import FiveRun, err_lines, file_bytes, model_of, one_clear_error, run_nmt
from models import MARIAN, fresh_translator, random_translator, search_with_bans

from nmt.errors import InputError, ModelError, NmtError
from nmt.interchange import ctranslate2 as module
from nmt.interchange.ctranslate2 import QUANTIZATIONS, to_ctranslate2
from nmt.text import EOS
from nmt.translate.loading import load

CHOICES: list[dict[str, Any]] = [
    {"norm": "pre", "activation": "relu", "positions": "sinusoidal"},
    {"norm": "post", "activation": "gelu", "positions": "learned", "d_model": 15, "n_heads": 5, "d_ff": 7},
    {"norm": "post", "positions": "rotary", "n_encoder_layers": 2, "n_decoder_layers": 3},
    {"positions": "none", "n_heads": 1, "max_positions": 8, "activation": "silu"},
    {"tied_embeddings": "decoder", "joint": False, "n_encoder_layers": 3, "n_decoder_layers": 1},
    {"tied_embeddings": "none", "joint": False},
    {**MARIAN, "norm_epsilon": 0.1},
]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where the export is written to."""
    return tmp_path / "out"


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_greedy_translations_are_ours(choices: dict[str, Any], out: Path) -> None:
    translator = random_translator(**choices)
    to_ctranslate2(translator, out)
    engine = ctranslate2.Translator(str(out))
    source, target = translator.tokenizers
    generator = torch.Generator().manual_seed(2)
    sources = []
    for length in (1, 4, 7):
        tokens = torch.randint(4, len(source), (length,), generator=generator)
        sources.append(tokens.tolist())
    pieces = list(map(source.pieces, sources))
    limits = {"max_decoding_length": 7, "min_decoding_length": 0}
    theirs = engine.translate_batch(pieces, beam_size=1, return_end_token=True, **limits)
    options = translator.with_options(beam=1, min_length=0, max_length_a=0.0, max_length_b=8)
    for ours, result in zip(search_with_bans(translator, sources, options), theirs, strict=True):
        found = target.ids(result.hypotheses[0])
        # At the limit of 8 tokens we force EOS, and CTranslate2 cuts.
        assert ours.tokens in (found, [*found, EOS])


@pytest.mark.parametrize("tied", ["all", "none"])
def test_each_quantization_loads_and_leaves_the_model_unchanged(tied: str, tmp_path: Path) -> None:
    translator = random_translator(tied_embeddings=tied)
    model = model_of(translator)
    model.projection.weight.data /= 2  # CPUs without AVX-512 multiply int8 less exactly
    before = {name: x.clone() for name, x in model.state_dict().items()}
    n_bytes = {}
    for kind in QUANTIZATIONS:
        out = tmp_path / kind
        to_ctranslate2(translator, out, kind)
        ctranslate2.Translator(str(out))
        n_bytes[kind] = (out / "model.bin").stat().st_size
    assert n_bytes["int8"] < n_bytes["float16"] == n_bytes["bfloat16"]
    assert n_bytes["float16"] < 0.6 * n_bytes["float32"]
    after = dict(model.state_dict())
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_an_export_of_other_log_probs_is_refused(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to_ctranslate2(random_translator(), out)
    before = file_bytes(out.parent)
    monkeypatch.setattr(module, "ACTIVATIONS", dict.fromkeys(module.ACTIVATIONS, "GELU"))
    with pytest.raises(NmtError, match="CTranslate2's float32 log-probabilities differ from the model's by") as error:
        to_ctranslate2(random_translator(), out, "int8")
    assert error.value.exit_code == 1
    assert file_bytes(out.parent) == before


def test_wrong_quantization_is_refused(out: Path) -> None:
    with pytest.raises(InputError, match="unknown quantization 'int4'"):
        to_ctranslate2(random_translator(), out, "int4")


def test_an_unsupported_setting_is_refused_by_name(out: Path) -> None:
    """The tests of the engine have the others."""
    with pytest.raises(InputError, match=r"^CTranslate2 does not support model\.attention=additive$") as error:
        to_ctranslate2(fresh_translator(attention="additive"), out)
    assert error.value.hint == "translate with nmt itself"
    assert not out.exists()


def test_the_command_says_what_it_has_checked_and_written(five_run: FiveRun, out: Path) -> None:
    done = run_nmt("export", "-m", five_run.model_file, "--to", "ctranslate2", "-o", out, "--quantization", "int8")
    assert done.stdout == b""
    checked, written = err_lines(done)
    assert checked.startswith("checked: log-probabilities differ from the model's by at most ")
    assert "(int8)" in checked
    assert written == f"written to {out}"
    content = b"".join(file_bytes(out).values())
    assert str(five_run.home).encode() not in content


def test_an_unknown_format_is_refused(five_run: FiveRun, out: Path) -> None:
    done = run_nmt("export", "-m", five_run.model_file, "--to", "tflite", "-o", out)
    one_clear_error(done, 2, "'tflite' is not one of")


def test_an_export_knows_the_learned_characters_and_the_limit(out: Path) -> None:
    translator = random_translator(decode={"max_length_a": 4.25, "max_length_b": 33})
    translator.tokenizers = translator.tokenizers.with_learned("€ə\r")
    to_ctranslate2(translator, out)
    exported = load(out)
    assert exported.unknown("€ə₪") == {"₪"}
    result = exported.options.limit(10)
    assert result == 43 + 33


def test_an_export_without_learned_characters_has_none(out: Path) -> None:
    to_ctranslate2(random_translator(), out)
    assert load(out).tokenizers.source.learned is None


def test_characters_of_an_export_that_are_no_text_are_refused(out: Path) -> None:
    to_ctranslate2(random_translator(), out)
    (out / "characters.txt").write_bytes(b"\xff")
    with pytest.raises(ModelError, match=r"characters\.txt is damaged$"):
        load(out)
