#!/usr/bin/env bash
# sacreBLEU 2.6.0 with numpy 2.4.6: `--paired-bs -f json` computes everything and then ends with a traceback.
#
# Expected: the scores and p-values as JSON, as `-f text` and `-f latex` print them.
# Seen: TypeError: Object of type float32 is not JSON serializable. Means and intervals of chrF2 and TER are numpy.float32.
# Workaround: `-f text`, or the Python API.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check sacrebleu==2.6.0 numpy==2.4.6
cd "$folder"
for i in $(seq 60); do
  echo "Reference number $i says that the ferry leaves at noon." >> reference
  echo "Reference number $i says the ferry will leave at noon." >> system
  echo "Reference number $i says that the ferry will leave at noon." >> other
done
venv/bin/sacrebleu reference -i system other -m chrf --paired-bs -f text > scores.txt
grep -q chrF2 scores.txt
if venv/bin/sacrebleu reference -i system other -m chrf --paired-bs -f json > scores.json 2> error.txt; then
  echo "the behavior has changed" >&2
  exit 1
fi
tail -n 1 error.txt
grep -q "float32 is not JSON serializable" error.txt
