"""Ensembles: the log of the mean probability, by hand, in greedy search, beam search and sampling."""

from pathlib import Path
from typing import Any

import pytest
import torch
from models import LINES, make, small_translator, sources, write_run

from nmt.decode.engines.torch_engine import EnsembleDecoder, TorchEngine, log_mean_probs
from nmt.decode.options import SearchOptions
from nmt.decode.search import search
from nmt.decode.translator import load
from nmt.errors import ConfigError, InputError, ModelError
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.model.base import Seq2Seq
from nmt.model.incremental import incremental_decoder
from nmt.run.checkpoint import Checkpoint, new_model, save_checkpoint
from nmt.text import BOS
from nmt.text.tokenizer import Tokenizers, train_tokenizer

RNN = {"architecture": "rnn", "attention": "additive"}
ROWS = [[5, 6, 7], [9], [4, 8, 15, 16, 22], [20, 21]]
TRANSLATOR = small_translator()


def a_model(seed: int, **choices: Any) -> Seq2Seq:
    return make(seed, **{"max_positions": 64, **choices}, scale=2.0)


def ensemble(*models: Seq2Seq) -> EnsembleDecoder:
    return EnsembleDecoder([incremental_decoder(model) for model in models])


def test_the_mean_is_that_of_probabilities() -> None:
    probabilities = [[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]]
    logits = [torch.tensor([p], dtype=torch.float64).log() + 3 for p in probabilities]
    mean = log_mean_probs(logits).exp()[0].tolist()
    assert mean == pytest.approx([0.3, 0.575, 0.125])


@pytest.mark.parametrize(
    "options",
    [SearchOptions(beam=1), SearchOptions(beam=4, n_best=4), SearchOptions(beam=3, n_best=3, sample=True)],
)
def test_a_model_with_itself_is_the_model(options: SearchOptions) -> None:
    model = a_model(1)
    with torch.no_grad():
        alone = search(incremental_decoder(model), sources(*ROWS), options)
        together = search(ensemble(model, model, model), sources(*ROWS), options)
    for one, other in zip(alone, together, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other])


@pytest.mark.parametrize(
    "options", [SearchOptions(beam=b, n_best=b, sample=s) for b, s in ((1, False), (4, False), (3, True))]
)
def test_scores_are_by_hand_and_neighbours_do_not_matter(options: SearchOptions) -> None:
    models = [a_model(1), a_model(2, **RNN)]
    with torch.no_grad():
        found = search(ensemble(*models), sources(*ROWS), options)
        for number, (row, hypotheses) in enumerate(zip(ROWS, found, strict=True)):
            alone = search(ensemble(*models), sources(row), options, sentence_seeds=[number])[0]
            assert [h.tokens for h in alone] == [h.tokens for h in hypotheses]
            for h in hypotheses:
                tgt_in = torch.tensor([[BOS, *h.tokens[:-1]]])
                probabilities = [model(sources(row), tgt_in).softmax(-1)[0] for model in models]
                mean = (probabilities[0] + probabilities[1]) / 2
                assert h.log_probs == pytest.approx(mean.log()[range(len(h.tokens)), h.tokens].tolist(), abs=1e-9)


def test_it_holds_what_all_can_hold() -> None:
    assert TorchEngine(a_model(1), a_model(1, max_positions=16)).max_length == 16


def write_models(home: Path) -> list[Path]:
    """Write a run, and a model file with the same tokenizer, other weights and a lower `data.max_length`."""
    run = write_run(TRANSLATOR, home / "one")
    torch.manual_seed(5)
    engine = TRANSLATOR.engine
    assert isinstance(engine, TorchEngine)
    tensors = {f"model.{name}": torch.randn_like(x).float() for name, x in engine.models[0].named_parameters()}
    data = TRANSLATOR.config.data.model_copy(update={"max_length": 9})
    config = TRANSLATOR.config.model_copy(update={"data": data})
    save_checkpoint(home / "two.safetensors", Checkpoint(config, tensors, TRANSLATOR.tokenizers))
    return [run.path, home / "two.safetensors"]


def test_runs_and_model_files_load_together(tmp_path: Path) -> None:
    paths = write_models(tmp_path)
    together = load(paths)
    assert together.config.data.max_length == 9
    found = list(together.translate_lines(LINES, together.with_options(beam=3)))
    assert [one.text for one in found] != TRANSLATOR.translate(LINES, beam=3)
    twice = load([paths[0], str(paths[0])])
    assert twice.translate(LINES) == load(paths[0], engine="torch").translate(LINES)


def test_different_tokenizers_are_refused_by_name(tmp_path: Path) -> None:
    first, _ = write_models(tmp_path)
    size = TRANSLATOR.config.tokenizer.model_copy(update={"vocab_size": len(TRANSLATOR.tokenizers.target)})
    other = train_tokenizer([line.upper() for line in LINES], size).model
    tokenizers = Tokenizers.from_models(other, other, nfkc_source=False)
    settings = TRANSLATOR.config.model_copy(update={"tokenizer": size})
    torch.manual_seed(1)
    model = new_model(settings, tokenizers)
    tensors = {f"model.{name}": x.detach() for name, x in model.named_parameters()}
    foreign = tmp_path / "foreign.safetensors"
    save_checkpoint(foreign, Checkpoint(settings, tensors, tokenizers))
    with pytest.raises(ModelError, match=r"one and .*foreign\.safetensors have different tokenizers"):
        load([first, foreign])


def test_exports_are_refused(tmp_path: Path) -> None:
    paths = write_models(tmp_path)
    export = tmp_path / "export"
    export.mkdir()
    (export / "model.bin").touch()
    with pytest.raises(ModelError, match="export is a CTranslate2 export"):
        load([paths[0], export])
    with pytest.raises(ConfigError, match="CTranslate2 cannot translate: several models"):
        load(paths, engine="ctranslate2")
    with pytest.raises(InputError, match="an ensemble cannot be exported as one model"):
        to_ctranslate2(load(paths), tmp_path / "new", "float32")
