"""What holds for every model: causal, blind to padding and to neighbours, the same step by step."""

from typing import Any

import pytest
import torch
from models import FAMILY, RNNS, TRANSFORMERS, V, batch, fresh, make, name

from nmt.run.checkpoint import weights_of
from nmt.text import BOS, PAD

every = pytest.mark.parametrize("choices", FAMILY, ids=name)


@pytest.mark.parametrize("choices", [*TRANSFORMERS, *RNNS], ids=name)
def test_a_cached_step_is_the_full_pass(choices: dict[str, Any]) -> None:
    model = make(**choices)
    src, tgt = batch((7, 6), (4, 6), (2, 6))
    with torch.no_grad():
        full = model(src, tgt)
        state = model.start(src, 1)
        for t in range(tgt.size(1)):
            logits, state = model.step(tgt[:, t : t + 1], state)
            torch.testing.assert_close(logits[:, 0], full[:, t])


@every
def test_beams_that_part_and_sentences_that_leave_keep_their_own_past(choices: dict[str, Any]) -> None:
    model = make(**choices)
    src, _ = batch((7, 6), (4, 6), (2, 6))
    first = torch.tensor([[5, 6], [7, 8], [9, 10]])
    second = torch.tensor([[11, 12], [13, 14]])
    with torch.no_grad():
        state = model.start(src, 2)
        _, state = model.step(torch.full((3, 2), BOS), state)
        _, state = model.step(first, state)
        state = model.select(state, torch.tensor([[5, 4], [1, 1]]))  # sentence 2 with its beams swapped; 0 twice
        logits, _ = model.step(second, state)
        for row, (sentence, prefixes) in enumerate([(2, [[10, 11], [9, 12]]), (0, [[6, 13], [6, 14]])]):
            for beam, prefix in enumerate(prefixes):
                full = model(src[sentence : sentence + 1], torch.tensor([[BOS, *prefix]]))
                torch.testing.assert_close(logits[row, beam], full[0, -1])


@every
def test_a_future_target_token_cannot_change_a_logit_at_all(choices: dict[str, Any]) -> None:
    model = make(**choices)
    src, tgt = batch((7, 8))
    before = model(src, tgt)
    for t in range(1, 8):
        other = tgt.clone()
        other[0, t:] = torch.randint(4, V, (8 - t,), generator=torch.Generator().manual_seed(t))
        assert torch.equal(model(src, other)[0, :t], before[0, :t])


@every
def test_the_content_of_source_padding_cannot_change_a_logit_at_all(choices: dict[str, Any]) -> None:
    """What stands at padded positions is embedded like anything else: only the mask keeps it out."""
    model = make(**choices)
    src, tgt = batch((7, 5), (4, 5))
    with torch.no_grad():
        before = model(src, tgt)
        model.source_embedding.weight[PAD] += 100.0
        if model.settings.tied_embeddings == "all":  # PAD's own logit changes with its row
            assert torch.equal(model(src, tgt)[..., 1:], before[..., 1:])
        else:
            assert torch.equal(model(src, tgt), before)


@every
def test_the_amount_of_padding_changes_nothing_beyond_rounding(choices: dict[str, Any]) -> None:
    model = make(**choices)
    src, tgt = batch((7, 5))
    wide_src = torch.cat([src, torch.full((1, 9), PAD)], 1)
    wide_tgt = torch.cat([tgt, torch.full((1, 4), PAD)], 1)
    torch.testing.assert_close(model(wide_src, wide_tgt)[:, :5], model(src, tgt))


@every
def test_a_sentence_alone_is_the_same_as_in_a_batch(choices: dict[str, Any]) -> None:
    model = make(**choices)
    lengths = [(7, 5), (1, 9), (12, 2)]
    src, tgt = batch(*lengths)
    together = model(src, tgt)
    for row, (s, t) in enumerate(lengths):
        torch.testing.assert_close(model(src[row : row + 1, :s], tgt[row : row + 1, :t])[0], together[row, :t])


@every
def test_projecting_real_positions_alone_gives_their_logits(choices: dict[str, Any]) -> None:
    model = make(**choices)
    src, tgt = batch((7, 5), (4, 9))
    real = tgt != PAD
    torch.testing.assert_close(model(src, tgt, real), model(src, tgt)[real])


def test_ties_are_one_matrix() -> None:
    def names(tied: str) -> set[str]:
        return {name for name in weights_of(make(tied_embeddings=tied)) if "embedding" in name or "proj" in name}

    assert names("all") == {"source_embedding.weight"}
    assert names("decoder") == {"source_embedding.weight", "target_embedding.weight"}
    assert names("none") == {"source_embedding.weight", "target_embedding.weight", "projection.weight"}


def test_sides_may_have_vocabularies_of_different_size() -> None:
    model = make(n_target_vocab=31, tied_embeddings="decoder")
    src, tgt = batch((7, 5))
    assert model(src, tgt).shape == (1, 5, 31)


@every
def test_fresh_logits_are_of_moderate_size(choices: dict[str, Any]) -> None:
    """At the start the loss should be about log V: no projection that shouts."""
    model = fresh(**choices, d_model=128, d_ff=256)
    src, tgt = torch.randint(4, V, (8, 20)), torch.randint(4, V, (8, 20))
    assert model(src, tgt).std() < 2.0


@every
def test_dropout_acts_in_training_alone(choices: dict[str, Any]) -> None:
    model = make(**choices, dropout=0.5, activation_dropout=0.3, attention_dropout=0.2)
    src, tgt = batch((7, 5))
    assert torch.equal(model(src, tgt), model(src, tgt))
    model.train()
    assert not torch.equal(model(src, tgt), model(src, tgt))
    with torch.no_grad():
        assert not torch.equal(model(src, tgt), model(src, tgt))
