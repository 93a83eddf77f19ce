"""Shortlists: links of known attention weights, the candidates of each source piece, and exports that use them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, err_lines, model_of, run_nmt
from models import small_translator

from nmt.errors import InputError
from nmt.interchange import shortlist as module
from nmt.interchange.shortlist import is_plain, lines_of_map, linked_pieces, vocabulary_map
from nmt.model.base import AttentionWeights
from nmt.text import EOS
from nmt.text.lines import Pair
from nmt.translate.loading import load


def reversed_attention(src: torch.Tensor, tgt_in: torch.Tensor) -> AttentionWeights:
    """Token i attends to token i counted from the end; everything also attends to EOS and padding."""
    n_rows, n_source = src.shape
    weights = torch.full((2, n_rows, 4, tgt_in.size(1), n_source), 0.4)  # (L, B, H, T, S)
    n_pieces = (src > EOS).sum(1).tolist()
    for row, n in enumerate(n_pieces):
        weights[:, row, :, :, :n] = 0.01
        positions = torch.arange(n)
        weights[:, row, :, positions, positions.flip(0)] = 0.3
    return AttentionWeights(weights[:0], weights[:0], weights)


def test_a_target_token_is_linked_to_the_source_token_it_attends_to(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    monkeypatch.setattr(model_of(translator), "attention", reversed_attention)
    expected = []
    pairs = []
    for text in ("the red dog runs.", "a dog"):
        tokens = translator.tokenizers.source.encode(text)
        expected += list(zip(reversed(tokens), tokens, strict=True))
        pairs.append(Pair(1, text, text))
    links = np.concatenate(list(linked_pieces(translator, pairs)), axis=1)
    found = [tuple(link) for link in links.T.tolist()]
    assert sorted(found) == sorted(expected)


def test_candidates_are_frequent_links_the_piece_and_frequent_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_FREQUENT", 1)
    monkeypatch.setattr(module, "N_LINKED", 2)
    tokenizers = small_translator().tokenizers
    a, b, c, d = tokenizers.target.pieces([10, 11, 12, 13])
    sources = [10, 10, 10, 10, 10, 10, 11]
    targets = [11, 12, 12, 13, 13, 13, 13]
    lines = lines_of_map(tokenizers, np.array([sources, targets]))
    # Each line has a source piece and its candidates; the first is of all others.
    of_others, of_a, of_b = lines
    assert of_others == f"\t{d}"
    assert of_a == f"{a}\t{d} {c} {a}"
    assert of_b == f"{b}\t{d} {b}"


@pytest.mark.parametrize("piece", ["a b", "a\tb", "a\n"])
def test_a_piece_with_a_separator_is_left_out(piece: str) -> None:
    assert not is_plain(piece)


@pytest.fixture(scope="module")
def export(five_run: FiveRun, folder: Path) -> Path:
    out = folder / "out"
    done = run_nmt("export", "-m", five_run.run, "--to", "ctranslate2", "-o", out, "--shortlist")
    assert err_lines(done)[-1] == f"written to {out}"
    return out


def test_an_export_with_a_shortlist_translates_as_before(export: Path) -> None:
    translator = load(export)
    assert (export / "vmap.txt").is_file()
    assert translator.translate(SOURCE, beam=1) == TARGET
    assert translator.translate(SOURCE) == TARGET


def test_an_export_with_a_shortlist_generates_candidates_only(export: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(export, tmp_path / "copy"))
    piece = load(copy).tokenizers.target.pieces([20])[0]
    (copy / "vmap.txt").write_text(f"\t{piece}\n", encoding="utf-8")
    for translation in load(copy).translate_lines(SOURCE):
        assert {piece, "</s>"}.issuperset(translation.hypotheses[0].pieces)


def test_what_has_no_shortlist_is_refused(five_run: FiveRun) -> None:
    with pytest.raises(InputError, match="made from the training text of a run"):
        vocabulary_map(load(five_run.model_file, engine="torch"))
