"""Export to ONNX: ONNX Runtime gives our greedy translations."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import file_bytes
from models import random_translator

from nmt.decode.options import Segment
from nmt.decode.translator import Translator
from nmt.interchange import onnx as module
from nmt.interchange.onnx import FILES, to_onnx

RUNNER = Path(__file__).parents[2] / "configs" / "onnx" / "translate.py"
LINES = ["I bought a book .", "They are going to school tomorrow .", "tea"]


@pytest.fixture
def optimum() -> None:
    """Skip without optimum."""
    reason = "no optimum: pip install '.[onnx]'"
    for name in ("optimum.exporters.onnx", "optimum.onnxruntime"):
        pytest.importorskip(name, reason=reason, exc_type=ImportError)


def greedy(translator: Translator) -> list[str]:
    """Our translations of `LINES`, of at most 20 pieces."""
    options = translator.with_options(beam=1, min_length=0, max_length_a=0.0, max_length_b=20)
    segments = [Segment(translator.tokenizers.source.encode(line)) for line in LINES]
    found = translator.engine.start(segments, options, batch_size=1)()
    return [translator.tokenizers.target.decode(best[0].tokens) for best in found]


@pytest.mark.usefixtures("optimum")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "choices", [{"norm": "pre"}, {"norm": "post"}, {"norm": "post", "joint": False, "tied_embeddings": "none"}]
)
def test_runner_gives_our_greedy_translations_without_torch(choices: dict[str, Any], tmp_path: Path) -> None:
    translator = random_translator(**choices)
    to_onnx(translator, tmp_path / "out")
    names = {entry.name for entry in (tmp_path / "out").iterdir()}
    assert FILES - names <= {"tokenizer.json", "target_vocab.json"}
    assert names <= FILES
    assert ("tokenizer.json" in names) == translator.tokenizers.joint
    assert sorted(file.name for file in (tmp_path / "out" / "onnx").iterdir()) == sorted(module.GRAPHS)
    done = subprocess.run(
        [sys.executable, RUNNER, tmp_path / "out", "--max-length", "20"],
        input="\n".join(LINES).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split("\n")[:-1] == greedy(translator)
    before = file_bytes(tmp_path)
    to_onnx(translator, tmp_path / "out")  # replaces the first export
    assert file_bytes(tmp_path).keys() == before.keys()
