"""tokenizer.json: Hugging Face's tokenizers give our tokens and text."""

from typing import Any

import pytest
from conftest import TARGET
from models import hostile_lines

from nmt.config import TokenizerSettings
from nmt.interchange.onnx import tokenizer_json
from nmt.text import EOS
from nmt.text.tokenizer import Tokenizer, train_tokenizer


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_tokenizer_json_gives_our_tokens(kind: Any, byte_fallback: bool) -> None:
    """Lines with names of special pieces are skipped, because they are not parsed as text."""
    tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: pip install '.[huggingface]'")
    lines = [*TARGET, "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ <>/0123456789"]
    settings = TokenizerSettings(type=kind, vocab_size=400, byte_fallback=byte_fallback)
    side = Tokenizer(train_tokenizer(lines, settings).model)
    theirs = tokenizers.Tokenizer.from_str(tokenizer_json(side, kind))
    special = side.pieces(range(EOS + 1))
    for line in hostile_lines(300):
        if line and not any(piece in line for piece in special):
            found = theirs.encode(line).ids
            assert found == [*side.encode(line), EOS], repr(line)
            assert theirs.decode(found) == side.decode(found)
