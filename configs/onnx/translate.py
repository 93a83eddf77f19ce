"""Translate lines from stdin greedily with ONNX Runtime, without torch and without nmt.

pip install numpy onnxruntime sentencepiece
nmt export -m runs/mine --to onnx -o mine-onnx
python configs/onnx/translate.py mine-onnx < new.de > new.en
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import sentencepiece


class Translator:
    def __init__(self, path: Path) -> None:
        self.encoder = onnxruntime.InferenceSession(path / "onnx" / "encoder_model.onnx")
        self.decoder = onnxruntime.InferenceSession(path / "onnx" / "decoder_model_merged.onnx")
        self.source = sentencepiece.SentencePieceProcessor(model_file=str(path / "source.spm"))
        self.target = sentencepiece.SentencePieceProcessor(model_file=str(path / "target.spm"))
        self.config = json.loads((path / "config.json").read_text())
        cache = [i for i in self.decoder.get_inputs() if i.name.startswith("past_key_values.")]
        self.empty = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in cache}  # (1, H, 0, D/H)
        self.outputs = [output.name for output in self.decoder.get_outputs()]

    def translate(self, line: str, max_length: int) -> str:
        """The most probable piece at each position, up to EOS or `max_length` pieces with EOS."""
        eos = self.config["eos_token_id"]
        src = np.array([[*self.source.encode(line), eos]])  # (1, S)
        mask = np.ones_like(src)
        (memory,) = self.encoder.run(None, {"input_ids": src, "attention_mask": mask})  # (1, S, D)
        fixed = {"encoder_hidden_states": memory, "encoder_attention_mask": mask}
        tokens, cache = [self.config["decoder_start_token_id"]], dict(self.empty)
        while tokens[-1] != eos and len(tokens) < max_length:  # EOS counts, BOS does not
            is_first = len(tokens) == 1
            step = {"input_ids": np.array([tokens[-1:]]), "use_cache_branch": np.array([not is_first])}
            found = dict(zip(self.outputs, self.decoder.run(None, {**fixed, **step, **cache}), strict=True))
            tokens.append(int(found.pop("logits")[0, -1].argmax()))
            for name, value in found.items():
                if is_first or ".decoder." in name:  # cross-attention's keys and values stay those of the first step
                    cache[name.replace("present", "past_key_values")] = value
        return str(self.target.decode([token for token in tokens if token > eos]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="directory that `nmt export --to onnx` wrote")
    parser.add_argument("--max-length", type=int, default=200, help="longest translation, pieces")
    args = parser.parse_args()
    translator = Translator(args.model)
    for line in sys.stdin.buffer:
        print(translator.translate(line.decode().rstrip("\r\n"), args.max_length), flush=True)


if __name__ == "__main__":
    main()
