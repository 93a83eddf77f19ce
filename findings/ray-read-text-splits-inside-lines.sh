#!/usr/bin/env bash
# Ray 2.60.0: ray.data.read_text makes several rows of one line, and leaves out blank lines.
#
# Expected: a row for each line of a file, as lines are counted by `wc -l`, and as Spark, pandas and Arrow read JSON lines.
# Seen: U+2028, U+0085, form feeds, vertical tabs and \r end a row as well, because the file is read with str.splitlines;
#   blank lines are left out unless drop_empty_lines=False. Rows then have other numbers than the lines of a parallel file.
# Workaround: read_binary_files, and split the bytes at \n.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check "ray[data]==2.60.0"
"$folder/venv/bin/python" - "$folder/lines.txt" <<'PYTHON'
import pathlib
import sys

import ray

ray.init(num_cpus=1, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False)
path = pathlib.Path(sys.argv[1])
lines = ["one", "", "two\u2028three", "four\x0cfive", "six\u0085seven"]
path.write_bytes("".join(f"{line}\n" for line in lines).encode())
rows = [row["text"] for row in ray.data.read_text(str(path), drop_empty_lines=False).take_all()]
print(f"{len(lines)} lines, {len(rows)} rows: {rows}")
assert rows == ["one", "", "two", "three", "four", "five", "six", "seven"], "the behavior has changed"
rows = [row["text"] for row in ray.data.read_text(str(path)).take_all()]
assert "" not in rows, "the behavior has changed"
PYTHON
