"""configs/docker/Dockerfile: checks of its steps, without docker."""

from pathlib import Path

ROOT = Path(__file__).parents[1]


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
