#!/usr/bin/env bash
# sacreBLEU 2.6.0: its paired bootstrap finds a significant difference between a system and a copy of itself.
#
# Expected: systems with equal outputs differ on no resample, so a difference of 0 or more is certain under the null
#   hypothesis: p = 1.
# Seen: p = 1 / (number of resamples + 1), the smallest value that the test can give, since only resamples with a strictly
#   greater difference count. With 1,000 resamples that is 0.0010, which readers take for strong evidence, marked with
#   an asterisk. The same for BLEU, chrF2 and TER; also for outputs that a metric cannot tell apart, such as TER for a
#   change of case.
# Workaround: report p = 1 where the difference is 0, or count ties.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check sacrebleu==2.6.0
"$folder/venv/bin/python" - <<'PYTHON'
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

references = [f"Reference number {i} says that the ferry leaves at noon." for i in range(60)]
system = [f"Reference number {i} says the ferry will leave at noon." for i in range(60)]
metrics = {"BLEU": BLEU(references=[references]), "chrF2": CHRF(references=[references]), "TER": TER(references=[references])}
_, results = PairedTest([("system", system), ("copy", list(system))], metrics, references=None, n_samples=1000)()
p_values = {name: results[name][1].p_value for name in metrics}
print("p-values of a copy:", p_values)
assert all(abs(p_value - 1 / 1001) < 1e-9 for p_value in p_values.values()), "the behavior has changed"
PYTHON
