"""Ctrl-C during an import ends the command, even if a library catches the exception."""

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


@pytest.mark.parametrize("module", ["typer", "torch"])
def test_ctrl_c_during_an_import_ends_a_training(five_corpus: FiveCorpus, module: str) -> None:
    home = five_corpus.home
    (home / "sitecustomize.py").write_text(SITE.replace("MODULE", module))
    with started_nmt("train", five_corpus.config, cwd=home, env={"PYTHONPATH": str(home)}) as process:
        stdout, stderr = process.communicate(b"", timeout=PATIENCE_S)
    assert (process.returncode, stdout) == (130, b""), stderr
    assert b"Traceback" not in stderr
    assert not five_corpus.run.exists()
