"""Import of Marian's own files, and exports of such imports: every array is the same, bit by bit."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SOURCE, TARGET, err_lines, model_of, one_clear_error, out_lines, run_nmt
from marian_models import D, model_yml, write_marian, write_npz

import nmt
from nmt.errors import InputError
from nmt.interchange.importing import import_model
from nmt.interchange.marian import to_marian
from nmt.interchange.marian_import import parse_yaml, read_marian
from nmt.text import BOS, EOS, UNK
from nmt.translate.translator import Translator

Matrix = Any  # of numpy


def imported(directory: Path, run: Path) -> Translator:
    import_model(read_marian(directory), run)
    return nmt.load(run, engine="torch")


def test_the_settings_are_those_of_marian(tmp_path: Path) -> None:
    config = imported(write_marian(tmp_path / "marian"), tmp_path / "run").config
    model = config.model
    result = (model.positions, model.start, model.norm_epsilon, model.norm)
    assert result == ("marian", "zero", 1e-6, "post")
    found = (model.d_model, model.n_heads, model.n_encoder_layers, model.n_decoder_layers)
    assert found == (D, 4, 1, 2)
    assert (config.decode.beam, config.decode.alpha) == (6, 0.6)


def test_log_probs_are_those_of_plain_formulas(tmp_path: Path) -> None:
    """The logits after one decoder step are those of Marian's formulas in numpy, with its order of features."""
    directory = write_marian(tmp_path / "marian", tied="none")
    translator = imported(directory, tmp_path / "run")
    arrays = dict(np.load(directory / "model.npz"))
    tokens = translator.tokenizers.source.encode(SOURCE[0])
    rows = read_marian(directory).source.rows
    ours = model_of(translator)(torch.tensor([[*tokens, EOS]]), torch.tensor([[BOS]]))[0, 0]
    expected = first_logits(arrays, [rows[token] for token in [*tokens, EOS]])
    in_our_order = expected[rows[UNK]], expected[rows[EOS]], *expected[rows[EOS + 1 :]]
    result = ours[[UNK, *range(EOS, len(ours))]]
    assert torch.allclose(result, torch.tensor(np.array(in_our_order), dtype=torch.float32), atol=2e-4)


def first_logits(a: dict[str, Matrix], source: list[int]) -> Matrix:
    """Marian's logits of the first target token, for a model of one encoder layer and two decoder layers."""

    def positions(n: int) -> Matrix:
        exponents = np.arange(D // 2) / (D // 2 - 1)
        frequencies = 10_000**-exponents
        angles = np.outer(np.arange(n), frequencies)
        return np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def norm(x: Matrix, name: str) -> Matrix:
        centered = x - x.mean(-1, keepdims=True)
        variance = x.var(-1, keepdims=True)
        normalized = centered / np.sqrt(variance + 1e-6)
        return normalized * a[f"{name}_ln_scale"] + a[f"{name}_ln_bias"]

    def linear(x: Matrix, name: str, letter: str) -> Matrix:
        bias = a[f"{name}_b{letter}"]
        return x @ a[f"{name}_W{letter}"] + bias

    def heads(x: Matrix, name: str, letter: str) -> Matrix:
        projected = linear(x, name, letter)
        return projected.reshape(len(x), 4, D // 4).swapaxes(0, 1)

    def attend(x: Matrix, memory: Matrix, name: str) -> Matrix:
        query, key = heads(x, name, "q"), heads(memory, name, "k")
        value = heads(memory, name, "v")
        scores = query @ key.swapaxes(1, 2) / (D // 4) ** 0.5
        exponentials = np.exp(scores)
        weights = exponentials / exponentials.sum(-1, keepdims=True)
        context = weights @ value
        merged = context.swapaxes(0, 1).reshape(len(x), D)
        output = linear(merged, name, "o")
        return norm(x + output, f"{name}_Wo")

    def feed_forward(x: Matrix, name: str) -> Matrix:
        inner = linear(x, name, "1")
        swish = inner / (1 + np.exp(-inner))
        output = linear(swish, name, "2")
        return norm(x + output, f"{name}_ffn")

    embedded = a["encoder_Wemb"][source] * D**0.5
    memory = embedded + positions(len(source))
    memory = attend(memory, memory, "encoder_l1_self")
    memory = feed_forward(memory, "encoder_l1_ffn")
    x = positions(1)  # the first input is zeros
    for layer in ("decoder_l1", "decoder_l2"):
        x = attend(x, x, f"{layer}_self")
        x = attend(x, memory, f"{layer}_context")
        x = feed_forward(x, f"{layer}_ffn")
    logits = x @ a["decoder_ff_logit_out_Wt"].T
    return (logits + a["decoder_ff_logit_out_b"])[0]


def test_a_vocabulary_of_yaml_keeps_what_looks_like_other_types(tmp_path: Path) -> None:
    translator = imported(write_marian(tmp_path / "opus", yml=True), tmp_path / "run")
    pieces = translator.tokenizers.source.pieces(range(4, 10))
    assert pieces == ["1", "yes", "12:30", "<<", "~", "<7>"]
    with pytest.raises(InputError, match="a vocabulary that differs from the tokenizer's pieces"):
        to_marian(translator, tmp_path / "out")


def test_a_zip_file_is_imported_like_a_directory(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "opus", yml=True)
    with zipfile.ZipFile(tmp_path / "opus.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in directory.iterdir():
            archive.write(file, f"top/{file.name}")
        archive.writestr("README.md", "text")
    done = run_nmt("import", tmp_path / "opus.zip", "-o", "run", "--target-lang", "en", cwd=tmp_path)
    assert any("positions of marian: its decoder starts with zeros" in line for line in err_lines(done))
    expected = imported(directory, tmp_path / "expected").translate(SOURCE)
    result = nmt.load(tmp_path / "run", engine="torch").translate(SOURCE)
    assert result == expected


def test_files_are_found_without_decoder_yml(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "marian")
    (directory / "decoder.yml").unlink()
    config = imported(directory, tmp_path / "run").config
    assert (config.decode.beam, config.decode.alpha) == (12, 0)


def test_half_precision_is_read(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "marian")
    arrays = dict(np.load(directory / "model.npz"))
    n = len(arrays["Wemb"])
    del arrays["special:model.yml"]
    halves = {name: x.astype(np.float16) for name, x in arrays.items()}
    write_npz(directory / "model.npz", halves, model_yml(n, n))
    assert imported(directory, tmp_path / "run").translate(SOURCE)


def test_a_pre_norm_model_is_imported_with_a_warning_and_not_exported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    translator = imported(write_marian(tmp_path / "marian", norm="pre"), tmp_path / "run")
    assert translator.config.model.norm == "pre"
    assert "Marian decodes pre-norm models in another way" in caplog.text
    with pytest.raises(InputError, match=r"Marian does not support model\.norm=pre"):
        to_marian(translator, tmp_path / "out")


def test_the_positions_that_predict_a_dev_set_better_are_kept(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "original")
    (tmp_path / "dev.de").write_text("\n".join(SOURCE))
    (tmp_path / "dev.en").write_text("\n".join(TARGET))
    perplexities = {}
    for positions in ("marian", "huggingface"):
        run_nmt("import", directory, "-o", positions, "--positions", positions, cwd=tmp_path)
        done = run_nmt("score", "-m", positions, "--src", "dev.de", "--ref", "dev.en", cwd=tmp_path)
        perplexities[positions] = -sum(float(line.split("\t")[0]) for line in out_lines(done))
    chosen = run_nmt("import", directory, "-o", "chosen", "--dev", "dev.de", "dev.en", cwd=tmp_path)
    better = min(perplexities, key=perplexities.__getitem__)
    assert any(f"positions of {better}: perplexity on dev.en" in line for line in err_lines(chosen))


def test_one_of_several_models_must_be_named(tmp_path: Path) -> None:
    directory = write_marian(tmp_path / "marian")
    (directory / "decoder.yml").unlink()
    (directory / "other.npz").write_bytes(b"")
    done = run_nmt("import", directory, "-o", tmp_path / "run")
    assert "decoder.yml" in one_clear_error(done, 2, "has no such file, or several")


def test_yaml_is_a_mapping_of_texts() -> None:
    assert parse_yaml(b"1: yes\n12:30: [a, 2]\n") == {"1": "yes", "12:30": ["a", "2"]}
