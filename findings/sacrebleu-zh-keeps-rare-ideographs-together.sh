#!/usr/bin/env bash
# sacreBLEU 2.6.0: the tokenizer `zh` separates Chinese characters of the Basic Multilingual Plane only.
#
# Expected: `zh` makes each ideograph a token. Unicode has over 70,000 ideographs beyond U+FFFF, which names, literary
#   Chinese and Cantonese use.
# Seen: U+20000 U+20001 U+20002 is one token, next to separated common characters. A translation with one of three such
#   characters wrong matches no n-gram of them.
# Workaround: `--tokenize char` for such text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check sacrebleu==2.6.0
"$folder/venv/bin/python" - <<'PYTHON'
from sacrebleu.metrics import BLEU

tokens = BLEU(tokenize="zh").tokenizer("\U00020000\U00020001\U00020002我们").split()
print("tokens:", [[f"U+{ord(character):X}" for character in token] for token in tokens])
assert [len(token) for token in tokens] == [3, 1, 1], "the behavior has changed"
PYTHON
