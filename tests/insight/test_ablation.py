"""Ablation removes the output of the given heads and nothing else."""

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, model_of
from models import FAMILY, RNNS, batch, logits_of_steps, make, name

from nmt.decode.engines.torch_engine import TorchEngine
from nmt.decode.translator import Translator, load
from nmt.errors import InputError
from nmt.evaluate import score
from nmt.insight.ablation import ablated, bleu_without_each, head_names
from nmt.model.incremental import incremental_decoder
from nmt.model.transformer import Transformer


def test_a_head_without_output_weights_is_an_ablated_head() -> None:
    """Setting the head's columns of W^O to 0 has the same effect as `ablated`."""
    model, other = make(), make()
    assert isinstance(other, Transformer)
    src, tgt = batch((6, 5), (4, 3))
    with torch.no_grad():
        list(other.decoder)[1].cross_attention.output.weight[:, 8:12] = 0
        with ablated(model, ["cross.2.3"]):
            torch.testing.assert_close(model(src, tgt), other(src, tgt))
        assert not torch.allclose(model(src, tgt), other(src, tgt))


@pytest.mark.parametrize("choices", [FAMILY[0], FAMILY[1], {"attention": "additive"}, *RNNS[:3]], ids=name)
def test_every_head_matters_in_a_pass_and_in_search(choices: dict[str, object]) -> None:
    model = make(**choices)  # type: ignore[arg-type]
    src, tgt = batch((6, 5))
    heads = head_names(model)
    is_rnn = choices.get("architecture") == "rnn"
    assert len(heads) == ((choices["attention"] != "none") if is_rnn else 2 * 4 * 3)
    with torch.no_grad():
        whole = model(src, tgt)
        for head in heads[:: 1 if is_rnn else 5]:
            with ablated(model, [head]):
                without = model(src, tgt)
                steps = logits_of_steps(incremental_decoder(model), src, tgt, 2)
            assert not torch.allclose(whole, without)
            torch.testing.assert_close(torch.stack(steps, 1)[0, :, 0], without[0])
        assert torch.equal(model(src, tgt), whole)


def test_unknown_heads_are_refused_and_leave_no_hook() -> None:
    model = make()
    with (
        pytest.raises(InputError, match=r"no attention head 'encoder\.3\.1'"),
        ablated(model, ["cross.1.1", "encoder.3.1"]),
    ):
        pass
    assert not any(module._forward_pre_hooks for module in model.modules())
    without = make(architecture="rnn", attention="none")
    with pytest.raises(InputError) as caught, ablated(without, ["cross.1.1"]):
        pass
    assert caught.value.hint == "it has no attention"


def test_bleu_without_each_head(five_run: FiveRun) -> None:
    translator = load(five_run.run, engine="torch")
    found = bleu_without_each(translator, SOURCE, [TARGET])
    assert found["none"] == pytest.approx(100)
    assert list(found) == ["none", *head_names(model_of(translator))]
    with ablated(model_of(translator), ["cross.1.1"]):
        untraced = Translator(TorchEngine(model_of(translator)), translator.tokenizers, translator.config)
        hypotheses = untraced.translate(SOURCE, beam=1)
    (expected,) = score(hypotheses, [TARGET], ("bleu",))
    assert found["cross.1.1"] == pytest.approx(expected.value)
