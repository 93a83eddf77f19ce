"""Shortlists: links of known attention weights, the candidates of each source piece, and exports that use them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, err_lines, model_of, run_nmt
from models import small_translator

from nmt.errors import InputError
from nmt.interchange import shortlist as module
from nmt.interchange.shortlist import is_plain, lines_of, linked_pieces, vocabulary_map
from nmt.model.base import AttentionWeights
from nmt.text import EOS
from nmt.text.lines import Pair
from nmt.translate.translator import load


def test_a_target_token_is_linked_to_the_source_token_it_attends_to(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = small_translator()
    texts = ["the red dog runs.", "a dog"]
    tokens = [translator.tokenizers.source.encode(text) for text in texts]

    def reversed_attention(src: torch.Tensor, tgt_in: torch.Tensor) -> AttentionWeights:
        """Token i attends to token i counted from the end; everything also attends to EOS and padding."""
        weights = torch.full((2, len(src), 4, tgt_in.size(1), src.size(1)), 0.4)
        for row, n in enumerate((src > EOS).sum(1).tolist()):
            weights[:, row, :, :, :n] = 0.01
            weights[:, row, :, torch.arange(n), torch.arange(n).flip(0)] = 0.3
        return AttentionWeights(weights[:0], weights[:0], weights)

    monkeypatch.setattr(model_of(translator), "attention", reversed_attention)
    found = np.concatenate([*linked_pieces(translator, [Pair(1, text, text) for text in texts])], axis=1)
    expected = [link for of_text in tokens for link in zip(of_text[::-1], of_text, strict=True)]
    assert sorted(map(tuple, found.T.tolist())) == sorted(expected)


def test_candidates_are_frequent_links_the_piece_and_frequent_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "N_FREQUENT", 1)
    monkeypatch.setattr(module, "N_LINKED", 2)
    tokenizers = small_translator().tokenizers
    a, b, c, d = tokenizers.target.pieces([10, 11, 12, 13])
    links = np.array([[10, 10, 10, 10, 10, 10, 11], [11, 12, 12, 13, 13, 13, 13]])
    assert lines_of(tokenizers, links) == [f"\t{d}", f"{a}\t{d} {c} {a}", f"{b}\t{d} {b}"]
    assert not any(map(is_plain, ["a b", "a\tb", "a\n"]))


def test_an_export_with_a_shortlist_generates_candidates_only(five_run: FiveRun, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_nmt("export", "-m", five_run.run, "--to", "ctranslate2", "-o", out, "--shortlist")
    assert err_lines(done)[-1] == f"written to {out}"
    translator = load(out)
    assert translator.engine.name.endswith(" with a shortlist")
    assert translator.translate(SOURCE, beam=1) == translator.translate(SOURCE) == TARGET
    piece = translator.tokenizers.target.pieces(translator.tokenizers.target.encode(TARGET[0]))[0]
    (out / "vmap.txt").write_text(f"\t{piece}\n", encoding="utf-8")
    tokens = {token for best in load(out).translate_lines(SOURCE) for token in best.hypotheses[0].pieces}
    assert tokens <= {piece, "</s>"}


def test_what_has_no_shortlist_is_refused(five_run: FiveRun) -> None:
    with pytest.raises(InputError, match="made from the training text of a run"):
        vocabulary_map(load(five_run.model_file, engine="torch"))
