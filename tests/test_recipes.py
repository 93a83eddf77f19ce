"""Every recipe in configs/ parses, its sources and targets match; the Dockerfile, the service and a cluster."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from nmt.cli.app import app
from nmt.config import Config, language, load_config
from nmt.corpus.catalog import CORPORA
from nmt.train.corpora import all_corpora, root_of

ROOT = Path(__file__).parents[1]
FILES = [*(ROOT / "configs").glob("**/*.yaml"), *(ROOT / "configs").glob("**/*.yml")]
RECIPES = sorted(path for path in FILES if path.parent.name != "cluster")  # configs/cluster has Kubernetes jobs


@pytest.fixture(params=RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def recipe(request: pytest.FixtureRequest) -> Config:
    return load_config(request.param)


def bare(path: str) -> str:
    return Path(path).name.removesuffix(".gz")


def test_no_two_recipes_share_a_run() -> None:
    runs = [load_config(path).run for path in RECIPES]
    assert len(runs) == len(set(runs)) > 0
    assert all(len(Path(run).parts) == 2 and Path(run).parts[0] == "runs" for run in runs)


def test_the_two_sides_of_every_corpus_belong_together(recipe: Config) -> None:
    """Both sides have equally many files, whose names differ only in the language; a direction is one language pair."""
    endings: dict[str, set[tuple[str, str]]] = {}
    for name, files in all_corpora(recipe).items():
        assert len({*files.source, *files.target}) == 2 * len(files.source), name
        for source, target in zip(files.source, files.target, strict=True):
            assert not Path(source).is_absolute()
            assert Path(source).parent == Path(target).parent
            source_stem, _, source_ending = bare(source).rpartition(".")
            target_stem, _, target_ending = bare(target).rpartition(".")
            assert source_stem == target_stem
            endings.setdefault(files.languages, set()).add((source_ending, target_ending))
    assert [*endings] == (recipe.data.directions or [""])
    for languages, (pair,) in endings.items():
        assert len({*pair}) == 2
        assert languages in ("", "-".join(pair))


def test_a_recipe_knows_its_languages_and_has_a_test_set(recipe: Config) -> None:
    """The target language selects BLEU's tokenizer."""
    for config in [recipe.direction(one) for one in recipe.data.directions] or [recipe]:
        languages = {language(config.data, "source"), language(config.data, "target")}
        assert len(languages - {""}) == 2
        assert config.data.test


def test_a_corpus_ships_with_the_project_or_can_be_downloaded(recipe: Config) -> None:
    for files in all_corpora(recipe).values():
        paths = {path.removesuffix(".gz") for path in (*files.source, *files.target)}
        if recipe.data.root:
            corpus = CORPORA[root_of(recipe, files)]
            assert paths <= set(corpus.files(corpus.languages))
        else:
            assert all((ROOT / path).is_file() for path in paths)


def test_the_image_runs_as_an_ordinary_user_and_takes_what_is_there() -> None:
    lines = (ROOT / "configs/docker/Dockerfile").read_text().splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    kinds = [kind for kind, _ in steps]
    assert kinds.index("USER") < kinds.index("ENTRYPOINT")
    assert ["USER", "root"] not in steps
    ignored = (ROOT / "configs/docker/Dockerfile.dockerignore").read_text().splitlines()
    for sources in (rest.split()[:-1] for kind, rest in steps if kind == "COPY"):
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored


def test_the_service_is_valid_and_reloads_by_the_signal_of_the_server(tmp_path: Path) -> None:
    text = (ROOT / "configs/systemd/nmt.service").read_text()
    ((program, words),) = re.findall(r"^ExecStart=(\S+) serve (.*)$", text, re.MULTILINE)
    options = typer.main.get_command(app).commands["serve"].params  # type: ignore[attr-defined]
    known = {name for option in options for name in option.opts}
    assert {word for word in words.split() if word.startswith("-")} <= known
    assert "ExecReload=/bin/kill -HUP $MAINPID\n" in text
    unit = tmp_path / "nmt.service"
    unit.write_text(text.replace(program, sys.executable))
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


OPTIONS = typer.main.get_command(app).commands["translate"].params  # type: ignore[attr-defined]
FOLDER = ROOT / "configs" / "cluster"
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
