#!/usr/bin/env bash
# numpy 2.1.3: `np.savez(file, allow_pickle=False, weights=x)` stores an array that is called allow_pickle.
#
# Expected: `allow_pickle` is an argument, as of `np.save` and `np.load`, or an error. From 2.2.0 on, it is an argument.
# Seen: no message, and a second member, allow_pickle.npy, with the boolean False. A reader that takes all arrays of an
# archive, such as one of weights, finds one too many. It concerns programs that were written for a newer numpy.
# Workaround: leave the argument out, or require numpy 2.2.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > members.py <<'EOF'
import zipfile
import numpy as np
np.savez("x.npz", allow_pickle=False, weights=np.zeros(3, np.float32))
print(np.__version__, *sorted(zipfile.ZipFile("x.npz").namelist()))
EOF
for version in 2.1.3 2.2.0; do
  python3 -m venv "venv-$version"
  "venv-$version/bin/pip" install -q --disable-pip-version-check "numpy==$version"
  "venv-$version/bin/python" members.py | tee -a members.txt
done
grep -qx "2.1.3 allow_pickle.npy weights.npy" members.txt
grep -qx "2.2.0 weights.npy" members.txt
