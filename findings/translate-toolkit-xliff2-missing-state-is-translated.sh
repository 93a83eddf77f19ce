#!/usr/bin/env bash
# translate-toolkit 3.20.4: a segment of XLIFF 2 without a state counts as translated, one with the same default state not.
#
# Expected: the attribute `state` of XLIFF 2.0 is "initial" where it is absent, so both segments below have the same state.
# Seen: with a target and no state, istranslated() is true and isfuzzy() is false. With state="initial", which says the
#   same, istranslated() is false and isfuzzy() is true. Statistics and filters by state count the same file in two ways.
# Workaround: write the state of each segment.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check translate-toolkit==3.20.4 lxml==6.1.3
"$folder/venv/bin/python" - <<'PYTHON'
from translate.storage.xliff2 import Xliff2File

SEGMENT = "<segment{}><source>Hello</source><target>Hallo</target></segment>"
FILE = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
<file id="f"><unit id="1">{}</unit></file></xliff>"""
states = {}
for state in ["", ' state="initial"']:
    (unit,) = Xliff2File.parsestring(FILE.format(SEGMENT.format(state)).encode()).units
    states[state] = (unit.istranslated(), unit.isfuzzy())
    print(f"segment{state}: translated {unit.istranslated()}, fuzzy {unit.isfuzzy()}")
assert states == {"": (True, False), ' state="initial"': (False, True)}, "the behavior has changed"
PYTHON
