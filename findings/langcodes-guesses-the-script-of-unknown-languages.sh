#!/usr/bin/env bash
# langcodes 3.5.1: a language without an entry in its table of likely subtags is completed as if it were English.
#
# Expected: maximize() of the code of Mesopotamian Arabic (acm), Southern Pashto (pbt), Assyrian (aii) or S'gaw Karen (ksw)
#   adds the Arabic, Syriac or Burmese script, or adds no script, so that a caller can see that it is unknown.
# Seen: each of them becomes Latn-US, as for English. Nothing tells this guess from an entry of the table: Hawaiian (haw)
#   gives the same, rightly. A caller that chooses fonts, directions or tokenizers by the script takes Arabic for Latin.
# Workaround: treat the script as unknown if the territory is US and the language is not English.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check langcodes==3.5.1
"$folder/venv/bin/python" - <<'PYTHON'
from langcodes import Language

for code in ["acm", "pbt", "aii", "ksw"]:
    maximized = Language.get(code).maximize().to_tag()
    print(f"{code} is completed to {maximized}")
    assert maximized == f"{code}-Latn-US", "the behavior has changed"
assert Language.get("apd").maximize().script == "Arab", "Sudanese Arabic is in the table"
PYTHON
