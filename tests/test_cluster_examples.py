"""The examples of configs/cluster: their nmt commands are valid, and each task translates its own shard."""

import re
import subprocess
from pathlib import Path

import typer
import yaml

from nmt.cli.app import app
from nmt.cli.shards import Shard

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
FOLDER = Path(__file__).parents[1] / "configs" / "cluster"


def test_each_task_of_the_slurm_array_translates_its_shard(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    script = FOLDER / "slurm.sh"
    found = re.search(r"(?m)^#SBATCH --array=0-(\d+)$", script.read_text())
    assert found
    last = int(found[1])
    for i in (0, last):
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": str(i), "SLURM_CPUS_PER_TASK": "4"}
        done = subprocess.run(["sh", script, "run", "in put", "out"], env=env, capture_output=True, check=True)
        words = done.stdout.decode().splitlines()
        assert words[:8] == ["nmt", "translate", "-m", "run", "-i", "in put", "-o", "out"]
        options = dict(zip(words[8::2], words[9::2], strict=True))
        assert options == {"--shard": f"{i}/{last + 1}", "--threads": "4"}
        assert Shard.parse(options["--shard"]) == Shard(i, last + 1)


def test_each_pod_of_the_kubernetes_job_translates_its_shard() -> None:
    job = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert job["completionMode"] == "Indexed"
    assert container["args"] == ["--shard", f"$(JOB_COMPLETION_INDEX)/{job['completions']}"]
    assert container["command"][:2] == ["nmt", "translate"]
    named = {word for word in (*container["command"], *container["args"]) if word.startswith("-")}
    assert named <= {name for param in COMMANDS["translate"].params for name in param.opts}
    volumes = [volume["name"] for volume in job["template"]["spec"]["volumes"]]
    assert [mount["name"] for mount in container["volumeMounts"]] == volumes
