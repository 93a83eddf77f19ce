"""COMET (Rei et al. 2020), a learned metric, with the interface of sacreBLEU's metrics. Needs the extra `comet`."""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Score, Signature

from nmt.errors import InputError

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
BATCH_SIZE = 16


class Comet:
    """COMET with the methods that sacreBLEU's paired tests call.

    The score is the mean of COMET's sentence scores, times 100 as papers report it. The statistics of a line are its
    score and a count of 1.
    """

    def __init__(self, sources: Sequence[str], references: Sequence[str], model: str) -> None:
        """Load a model by its name on the Hugging Face Hub, downloading it if needed, or from a .ckpt file.

        Raises:
            InputError: COMET is not installed, or cannot load the model.
        """
        try:
            from comet import download_model, load_from_checkpoint
        except ImportError as error:
            raise InputError("COMET is not installed", hint="pip install 'nmt-trainer[comet]'") from error
        self.sources, self.references, self.name = sources, references, model
        try:
            self.model: Any = load_from_checkpoint(model if model.endswith(".ckpt") else download_model(model))
        except Exception as error:  # many types: no network, no disk space, unknown model
            reason = " ".join(str(error).split())
            raise InputError(f"COMET cannot load {model}: {reason}", hint="check the name and the network") from error

    def get_signature(self) -> Signature:
        signature = Signature({"num_refs": 1})
        signature.info["version"] = f"comet-{metadata.version('unbabel-comet')}"
        signature.update("model", self.name)
        return signature

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], _references: None) -> list[list[float]]:
        import torch

        triples = zip(self.sources, hypotheses, self.references, strict=True)
        samples = [{"src": source, "mt": text, "ref": reference} for source, text, reference in triples]
        n_gpus = int(torch.cuda.is_available())
        scores = self.model.predict(samples, batch_size=BATCH_SIZE, gpus=n_gpus, progress_bar=False).scores
        return [[100 * float(score), 1.0] for score in scores]

    def _aggregate_and_compute(self, statistics: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats(np.sum(statistics, axis=0))

    def _compute_score_from_stats(self, total: Sequence[float]) -> Score:
        return Score("COMET", float(total[0] / total[1]))
