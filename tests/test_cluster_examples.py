"""The examples of configs/cluster: each task translates its own part, and the parts are the file."""

import subprocess
from pathlib import Path

import typer
import yaml

from nmt.cli.app import app

OPTIONS = typer.main.get_command(app).commands["translate"].params  # type: ignore[attr-defined]
FOLDER = Path(__file__).parents[1] / "configs" / "cluster"
N_PARTS = 10
# Stands for nmt, and for srun nmt: copies the input to the output, and logs its arguments.
NMT = """#!/bin/sh
echo "$*" >> log
while test $# -gt 0; do
    case $1 in -i) input=$2;; -o) output=$2;; esac
    shift
done
cp "$input" "$output"
"""


def translated(folder: Path, source: str, command: list[str], index: str) -> list[str]:
    """Split a file, run the command of each part (`index` has its number) twice, join the parts; return nmt's words."""
    text = "".join(f"line {i}\n" for i in range(99))
    (folder / source).write_text(text)
    for name in ("nmt", "srun"):
        (folder / name).write_text(NMT)
        (folder / name).chmod(0o755)
    subprocess.run(["split", "-n", f"l/{N_PARTS}", "-d", "-a", "3", source, f"{source}."], cwd=folder, check=True)
    variables = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_CPUS_PER_TASK": "4"}
    for _ in range(2):
        for i in range(N_PARTS):
            subprocess.run(command, cwd=folder, env={**variables, index: str(i)}, check=True)
    parts = sorted(folder.glob("out.???"))
    assert "".join(part.read_text() for part in parts) == text
    calls = (folder / "log").read_text().splitlines()
    assert len(calls) == N_PARTS, "a finished part stays as it is"
    named = {word for call in calls for word in call.split() if word.startswith("-")}
    assert named <= {name for option in OPTIONS for name in option.opts}
    assert "--resume" in named
    return calls


def test_each_task_of_the_slurm_array_translates_its_part(tmp_path: Path) -> None:
    script = FOLDER / "slurm.sh"
    assert f"#SBATCH --array=0-{N_PARTS - 1}\n" in script.read_text()
    calls = translated(tmp_path, "in", ["sh", str(script), "run", "in", "out"], "SLURM_ARRAY_TASK_ID")
    assert calls[0] == "nmt translate --resume -m run -i in.000 -o out.000 --threads 4"


def test_each_pod_of_the_kubernetes_job_translates_its_part(tmp_path: Path) -> None:
    job = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert (job["completionMode"], job["completions"]) == ("Indexed", N_PARTS)
    volumes = [volume["name"] for volume in job["template"]["spec"]["volumes"]]
    assert [mount["name"] for mount in container["volumeMounts"]] == volumes
    script = container["args"][0].replace("/texts/", f"{tmp_path}/").replace("new.de", "in").replace("new.en", "out")
    translated(tmp_path, "in", [*container["command"], script], "JOB_COMPLETION_INDEX")
