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
FILES = sorted((ROOT / "configs").glob("**/*.yaml"))
RECIPES = [path for path in FILES if path.parent.name not in ("cluster", "serving")]  # these are no recipes


@pytest.fixture(params=RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def recipe(request: pytest.FixtureRequest) -> Config:
    return load_config(request.param)


def test_no_two_recipes_share_a_run() -> None:
    runs = [load_config(path).run for path in RECIPES]
    result = len(runs)
    assert result == len(set(runs))


def test_a_run_is_a_folder_in_runs(recipe: Config) -> None:
    assert re.fullmatch("runs/[^/]+", recipe.run)


def test_the_two_sides_of_every_corpus_differ_in_the_language_only(recipe: Config) -> None:
    for corpus in all_corpora(recipe).values():
        for source, target in zip(corpus.source, corpus.target, strict=True):
            assert source != target
            assert not Path(source).is_absolute()
            assert without_language(source) == without_language(target)
        assert len(set(corpus.source)) == len(corpus.source)


def without_language(path: str) -> str:
    return path.removesuffix(".gz").rpartition(".")[0]


def test_files_end_in_their_languages(recipe: Config) -> None:
    languages = f"{language(recipe.data, 'source')}-{language(recipe.data, 'target')}"
    for corpus in all_corpora(recipe).values():
        source_language, _, target_language = (corpus.languages or languages).partition("-")
        for source, target in zip(corpus.source, corpus.target, strict=True):
            assert source.removesuffix(".gz").endswith(source_language)
            assert target.removesuffix(".gz").endswith(target_language)


def test_a_recipe_knows_its_languages_and_has_a_test_set(recipe: Config) -> None:
    """The target language selects BLEU's tokenizer."""
    for languages in recipe.data.directions or [""]:
        data = recipe.direction(languages).data if languages else recipe.data
        source_language, target_language = language(data, "source"), language(data, "target")
        assert source_language
        assert target_language not in ("", source_language)
        assert data.test


def test_a_corpus_ships_with_the_project_or_can_be_downloaded(recipe: Config) -> None:
    for files in all_corpora(recipe).values():
        for path in (*files.source, *files.target):
            if recipe.data.root:
                corpus = CORPORA[root_of(recipe, files)]
                assert path.removesuffix(".gz") in corpus.files(corpus.languages)
            else:
                assert (ROOT / path).is_file()


DOCKERFILE = (ROOT / "configs/docker/Dockerfile").read_text()


def test_the_image_runs_as_an_ordinary_user() -> None:
    before, _, _ = DOCKERFILE.partition("\nENTRYPOINT")
    (user,) = re.findall("^USER (.*)$", before, re.MULTILINE)
    assert user != "root"


def test_the_image_writes_to_tmp_only() -> None:
    assert "--read-only --tmpfs /tmp" in DOCKERFILE
    assert "\nENV NMT_CACHE=/tmp/nmt\n" in DOCKERFILE


SERVING = ROOT / "configs" / "serving"


def test_containers_are_read_only_but_for_tmp() -> None:
    deployment, _service = yaml.safe_load_all((SERVING / "kubernetes.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 5000}
    composed = yaml.safe_load((SERVING / "compose.yaml").read_text())["services"]["nmt"]
    assert composed["read_only"]
    assert composed["tmpfs"] == ["/tmp"]


def test_the_image_takes_what_is_there() -> None:
    kept = (ROOT / "configs/docker/Dockerfile.dockerignore").read_text().splitlines()
    for words in re.findall("^COPY (.*)$", DOCKERFILE, re.MULTILINE):
        *sources, _destination = words.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in kept


SERVICE = (ROOT / "configs/systemd/nmt.service").read_text()


def options_in(words: str) -> set[str]:
    return {word for word in words.split() if word.startswith("-")}


def options_of(command: str) -> list[str]:
    names = []
    for option in typer.main.get_command(app).commands[command].params:  # type: ignore[attr-defined]
        names += option.opts
    return names


def test_the_service_gives_options_that_nmt_serve_has() -> None:
    (words,) = re.findall(r"^ExecStart=\S+ serve (.*)$", SERVICE, re.MULTILINE)
    assert options_in(words) <= set(options_of("serve"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_the_service_is_valid(tmp_path: Path) -> None:
    unit = tmp_path / "nmt.service"
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", SERVICE))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_the_service_is_little_exposed(tmp_path: Path) -> None:
    unit = tmp_path / "nmt.service"
    unit.write_text(SERVICE)
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=12", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# --- a cluster

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
    # 1. A program nmt that copies, and a file in ten parts.
    for name in ("nmt", "srun"):
        (folder / name).write_text(NMT)
        (folder / name).chmod(0o755)
    lines = [f"line {i}\n" for i in range(99)]
    (folder / source).write_text("".join(lines))
    split = ["split", "-n", f"l/{N_PARTS}", "-d", "-a", "3"]
    subprocess.run([*split, source, f"{source}."], cwd=folder, check=True)
    # 2. Translate each part, twice, as after a restart of the whole job.
    variables = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_CPUS_PER_TASK": "4"}
    for _attempt in range(2):
        for part in range(N_PARTS):
            subprocess.run(command, cwd=folder, env={**variables, index: str(part)}, check=True)
    # 3. The parts are whole, and each was translated once.
    parts = sorted(folder.glob("out.???"))
    translated_lines = []
    for file in parts:
        translated_lines += file.read_text().splitlines(keepends=True)
    assert translated_lines == lines
    calls = (folder / "log").read_text().splitlines()
    assert len(calls) == N_PARTS, "a finished part stays as it is"
    check_options(calls[0])
    return calls


def check_options(call: str) -> None:
    named = options_in(call)
    assert named <= set(options_of("translate"))
    assert "--resume" in named


def test_each_task_of_the_slurm_array_translates_its_part(tmp_path: Path) -> None:
    script = FOLDER / "slurm.sh"
    assert f"#SBATCH --array=0-{N_PARTS - 1}\n" in script.read_text()
    calls = translated(tmp_path, "in", ["sh", str(script), "run", "in", "out"], "SLURM_ARRAY_TASK_ID")
    assert calls[0] == "nmt translate --resume -m run -i in.000 -o out.000 --threads 4"


JOB = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())["spec"]


def test_the_kubernetes_job_has_a_pod_for_each_part() -> None:
    assert JOB["completionMode"] == "Indexed"
    assert JOB["completions"] == N_PARTS


def test_each_pod_of_the_kubernetes_job_translates_its_part(tmp_path: Path) -> None:
    (container,) = JOB["template"]["spec"]["containers"]
    (script,) = container["args"]
    script = script.replace("/texts/", f"{tmp_path}/")
    script = script.replace("new.de", "in").replace("new.en", "out")
    translated(tmp_path, "in", [*container["command"], script], "JOB_COMPLETION_INDEX")
