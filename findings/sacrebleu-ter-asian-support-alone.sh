#!/usr/bin/env bash
# sacreBLEU 2.6.0: `--ter-asian-support` has no effect unless `--ter-normalized` is given, too.
#
# Expected: with support for Asian characters, TER of a Chinese sentence counts characters: a translation that lacks one
#   character of ten has TER 10.
# Seen: 100.00 with `--ter-asian-support` and a signature that says `asian:yes`; 10.00 with both options. The line is one
#   word in the first case, so that every translation with a difference has TER 100. There is no warning.
# Workaround: always give both options.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check sacrebleu==2.6.0
cd "$folder"
echo "我昨天买了一本旧书。" > reference
echo "我昨天买了一本书。" > system
score() { venv/bin/sacrebleu reference -i system -m ter -w 2 "$@" | venv/bin/python -c '
import json, sys
score = json.load(sys.stdin)
print(score["score"], score["signature"])'; }
alone=$(score --ter-asian-support)
both=$(score --ter-asian-support --ter-normalized)
echo "asian support alone: $alone"
echo "with normalized:     $both"
case "$alone" in 100.0*asian:yes*) ;; *) echo "the behavior has changed" >&2; exit 1 ;; esac
case "$both" in 10.0*asian:yes*) ;; *) echo "the behavior has changed" >&2; exit 1 ;; esac
