"""`nmt download`, and configs that name a corpus."""

import gzip
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import (
    PATIENCE_S,
    err_lines,
    out_lines,
    refused,
    run_in,
    run_nmt,
    started_nmt,
    wait_until,
)
from mirror import Mirror, serving

from nmt.corpus.catalog import CORPORA

TOK = CORPORA["multi30k-tok"]
# nmt pins no hashes of the tokenized French and Czech files, so tests may serve any content.
NAMES = TOK.files(("fr", "cs"))
TEXTS = {name: f"{name}\n".encode() * 2_000 for name in NAMES}
CONFIG = """\
run: runs/x
data:
  root: multi30k-tok
  train: {source: train.fr.gz, target: train.cs.gz}
"""


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with serving() as server:
        for name, text in TEXTS.items():
            server.add(TOK.url_of(name), text)
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "x.yaml").write_text(CONFIG)
    return tmp_path


def test_the_list(home: Path) -> None:
    names, *rows = out_lines(run_in(home, "download"))
    result = names.split()
    assert result == ["name", "languages", "train", "dev", "test", "MB", "license"]
    for row, corpus in zip(rows, CORPORA.values(), strict=True):
        assert row.startswith(f"{corpus.name} ")
        assert " ".join(corpus.languages) in row
        assert f"{corpus.n_pairs[0]:,}" in row
        assert corpus.license in row
        assert corpus.note in row
    (file,) = home.iterdir()
    assert file.name == "x.yaml", "nothing is written"


def test_a_corpus_by_name_and_languages(home: Path, mirror: Mirror) -> None:
    command = f"download multi30k-tok -l fr-cs --mirror {mirror.url}"
    lines = err_lines(run_in(home, command))
    path = "data/downloads/multi30k-tok"
    assert lines[0] == f"multi30k-tok: license: research, education; see {path}/LICENSE.txt"
    assert lines[-1] == f"written to {path}"
    for name, text in TEXTS.items():
        file = home / path / f"{name}.gz"
        assert gzip.decompress(file.read_bytes()) == text
    assert "Flickr30k" in (home / path / "LICENSE.txt").read_text()
    # A second time, nothing is missing.
    lines = err_lines(run_in(home, command))
    assert lines[-1] == f"{path} is complete"
    result = err_lines(run_in(home, f"{command} -q"))
    assert result == []


def test_a_config_gets_the_files_that_it_names(home: Path, mirror: Mirror) -> None:
    env = {"NMT_MIRROR": mirror.url, "NMT_DATA": str(home / "corpora")}
    done = run_nmt("download", "x.yaml", cwd=home, env=env)
    assert err_lines(done)[-1] == f"written to {home}/corpora/multi30k-tok"
    names = [file.name for file in home.rglob("*.gz")]
    assert sorted(names) == ["train.cs.gz", "train.fr.gz"]
    used = run_nmt("config", "data.train.source", "--of", "x.yaml", cwd=home, env=env)
    assert out_lines(used) == [f"{home}/corpora/multi30k-tok/train.fr.gz"]


@pytest.mark.parametrize("command", ["train x.yaml", "tokenize x.yaml", "train x.yaml --dry-run"])
def test_without_the_corpus_the_error_names_the_command(home: Path, command: str) -> None:
    stderr = refused(home, command, "cannot read multi30k-tok/train.fr.gz")
    assert "hint: `nmt download multi30k-tok -l fr-cs` gets this corpus; or set data.root" in stderr
    assert not (home / "runs").exists()


def test_an_interrupted_download_continues(home: Path, mirror: Mirror) -> None:
    mirror.pause = threading.Event()
    with started_nmt("download", "x.yaml", "--mirror", mirror.url, cwd=home) as process:
        wait_until(lambda: mirror.requests, running=process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"Traceback" not in stderr
    assert not (home / "data").exists()
    mirror.pause.set()
    assert run_in(home, f"download x.yaml --mirror {mirror.url}").returncode == 0
    source = home / "data/downloads/multi30k-tok/train.fr.gz"
    result = gzip.decompress(source.read_bytes())
    assert result == TEXTS["train.fr"]


UNSUITABLE = {  # arguments -> part of the error message
    "multi40k": "no corpus 'multi40k'",
    "multi30k -l en-nl": "multi30k is not in 'en-nl'",
    "tatoeba-cmn-eng -l zh": "tatoeba-cmn-eng is not in 'zh'",
    "x.yaml -l en-de": "x.yaml says which files it needs",
    "none.yaml": "cannot read none.yaml",
    "other.yaml": "other.yaml uses no corpus that can be downloaded",
    "dutch.yaml": "dutch.yaml names train.nl.gz, which multi30k-tok does not have",
    "plain.yaml": "plain.yaml names train.cs, which multi30k-tok does not have",
}


@pytest.mark.parametrize("arguments", UNSUITABLE)
def test_what_cannot_be_downloaded_is_refused(home: Path, arguments: str) -> None:
    (home / "other.yaml").write_text(CONFIG.replace("multi30k-tok", "mine"))
    (home / "dutch.yaml").write_text(CONFIG.replace("train.cs", "train.nl"))
    (home / "plain.yaml").write_text(CONFIG.replace("train.cs.gz", "train.cs"))
    refused(home, f"download {arguments}", UNSUITABLE[arguments])
