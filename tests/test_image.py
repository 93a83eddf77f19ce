"""configs/docker/Dockerfile: checks of its steps; with NMT_SOAK=1 they run, without docker, in an empty venv."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import FiveRun, started

ROOT = Path(__file__).parents[1]
STEPS = [
    line.split(" ", 1)
    for line in (ROOT / "configs/docker/Dockerfile").read_text().splitlines()
    if line and not line.startswith("#")
]


def step(name: str) -> str:
    (found,) = [rest for kind, rest in STEPS if kind == name]
    return found


def test_the_image_runs_as_an_ordinary_user_and_takes_what_is_there() -> None:
    kinds = [kind for kind, _ in STEPS]
    assert kinds.index("USER") < kinds.index("ENTRYPOINT")
    assert step("USER") != "root"
    ignored = (ROOT / "configs/docker/Dockerfile.dockerignore").read_text().splitlines()
    for sources in (rest.split()[:-1] for kind, rest in STEPS if kind == "COPY"):
        for source in sources:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored


@pytest.mark.skipif("NMT_SOAK" not in os.environ, reason="installs torch: make soak")
def test_the_steps_of_the_image_work(five_run: FiveRun, tmp_path: Path) -> None:
    app, venv = tmp_path / "app", tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    environment = {"PATH": f"{venv / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    environment |= {key: value for key, value in os.environ.items() if key.startswith("PIP_") or "proxy" in key.lower()}
    for kind, rest in STEPS:
        if kind == "COPY":
            *sources, target = rest.split()
            for source in sources:
                to = app / target / (source if target == "./" else "")
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    to.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, to)
        elif kind == "RUN" and rest.startswith("pip "):
            # PyTorch's own index may be unreachable from here; the default index has torch too.
            reachable = re.sub(r"--extra-index-url \S+", "", rest)
            subprocess.run(reachable, shell=True, check=True, cwd=app, env=environment)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [str(five_run.run) if word == "/model" else word for word in json.loads(step("ENTRYPOINT"))]
    command[0] = str(venv / "bin" / command[0])
    health = re.sub(r"^.*?CMD ", "", step("HEALTHCHECK")).replace("5000", port)
    with started([*command, "--port", port], cwd=tmp_path, env=environment) as server:
        for _ in range(600):
            healthy = subprocess.run(
                health, shell=True, cwd=tmp_path, env=environment, capture_output=True, check=False
            )
            if healthy.returncode == 0 or server.poll() is not None:
                break
            time.sleep(0.1)
        assert healthy.returncode == 0, healthy.stderr.decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/languages") as answer:
            assert [one["code"] for one in json.load(answer)] == ["zh", "en"]
