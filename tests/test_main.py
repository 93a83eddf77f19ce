"""Ctrl-C during an import ends the command, even if a library catches the exception."""

from pathlib import Path

import pytest
from conftest import PATIENCE_S, FiveCorpus, started_nmt

# sitecustomize: raises SIGINT while MODULE is imported, and catches the exception, as torch does with numpy.
SITE = """
import signal, sys

class Swallowing:
    def find_spec(self, name, path=None, target=None):
        if name == "MODULE" and sys.orig_argv[1:3] == ["-m", "nmt"]:
            sys.meta_path.remove(self)
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                pass

sys.meta_path.insert(0, Swallowing())
"""


def interrupted_at(module: str, home: Path, *args: object) -> tuple[int, str]:
    """Exit code and stderr of `nmt ARGS` with Ctrl-C during the import of a module."""
    (home / "sitecustomize.py").write_text(SITE.replace("MODULE", module))
    with started_nmt(*args, cwd=home, env={"PYTHONPATH": str(home)}) as process:
        stdout, stderr = process.communicate(b"", timeout=PATIENCE_S)
        assert not stdout
        return process.returncode, stderr.decode()


@pytest.mark.parametrize("module", ["typer", "torch"])
def test_ctrl_c_during_an_import_ends_a_training(five_corpus: FiveCorpus, module: str) -> None:
    code, stderr = interrupted_at(module, five_corpus.home, "train", five_corpus.config)
    assert code == 130, stderr
    assert "Traceback" not in stderr
    assert not five_corpus.run.exists()
