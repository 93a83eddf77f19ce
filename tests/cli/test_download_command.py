"""`nmt download`, and configs that name a corpus."""

import gzip
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, err_lines, one_clear_error, out_lines, run_nmt, started_nmt, wait_until
from mirror import Mirror, serving

from nmt.corpus.catalog import CORPORA

TOK = CORPORA["multi30k-tok"]
# nmt pins no hashes of the tokenized French and Czech files, so tests may serve any content.
NAMES = TOK.files(("fr", "cs"))
TEXTS = {name: "".join(f"{name} line {n}\n" for n in range(2_000)).encode() for name in NAMES}
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
    names, *rows = out_lines(run_nmt("download", cwd=home))
    assert names.split() == ["name", "languages", "train", "dev", "test", "MB", "license"]
    assert [row.split()[0] for row in rows] == list(CORPORA)
    for row, corpus in zip(rows, CORPORA.values(), strict=True):
        for cell in (*corpus.languages, *(f"{n:,}" for n in corpus.n_pairs), corpus.license, corpus.note):
            assert cell in row
    assert [file.name for file in home.iterdir()] == ["x.yaml"]


def test_a_corpus_by_name_and_languages(home: Path, mirror: Mirror) -> None:
    command = ["download", "multi30k-tok", "-l", "fr-cs", "--mirror", mirror.url]
    lines = err_lines(run_nmt(*command, cwd=home))
    path = Path("data/downloads/multi30k-tok")
    assert lines[0] == f"multi30k-tok: license: research, education; see {path}/LICENSE.txt"
    assert lines[-1] == f"written to {path}"
    assert {name: gzip.decompress((home / path / f"{name}.gz").read_bytes()) for name in NAMES} == TEXTS
    assert "Flickr30k" in (home / path / "LICENSE.txt").read_text()
    assert err_lines(run_nmt(*command, cwd=home))[-1] == f"{path} is complete"
    assert err_lines(run_nmt(*command, "-q", cwd=home)) == []


def test_a_config_gets_the_files_that_it_names(home: Path, mirror: Mirror) -> None:
    env = {"NMT_MIRROR": mirror.url, "NMT_DATA": str(home / "corpora")}
    done = run_nmt("download", "x.yaml", cwd=home, env=env)
    assert err_lines(done)[-1] == f"written to {home}/corpora/multi30k-tok"
    assert sorted(file.name for file in (home / "corpora/multi30k-tok").glob("*.gz")) == ["train.cs.gz", "train.fr.gz"]
    found = out_lines(run_nmt("config", "data.train.source", "--of", "x.yaml", cwd=home, env=env))
    assert found == [f"{home}/corpora/multi30k-tok/train.fr.gz"]


def test_without_the_corpus_the_error_names_the_command(home: Path) -> None:
    for command in (["train", "x.yaml"], ["tokenize", "x.yaml"], ["train", "x.yaml", "--dry-run"]):
        stderr = one_clear_error(run_nmt(*command, cwd=home), 2, "cannot read multi30k-tok/train.fr.gz")
        assert "hint: `nmt download multi30k-tok -l fr-cs` gets this corpus; or set data.root" in stderr
    assert not (home / "runs").exists()


def test_an_interrupted_download_continues(home: Path, mirror: Mirror) -> None:
    mirror.pause = threading.Event()
    command = ["download", "x.yaml", "--mirror", mirror.url]
    with started_nmt(*command, cwd=home) as process:
        wait_until(lambda: mirror.requests, running=process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, b"Traceback" in stderr) == (130, False)
    assert not (home / "data").exists()
    mirror.pause.set()
    assert run_nmt(*command, cwd=home).returncode == 0
    for name in ("train.fr", "train.cs"):
        assert gzip.decompress((home / f"data/downloads/multi30k-tok/{name}.gz").read_bytes()) == TEXTS[name]


def test_errors(home: Path, mirror: Mirror) -> None:
    (home / "demo.yaml").write_text("run: r\ndata: {train: {source: a.de, target: a.en}}\n")
    (home / "nl.yaml").write_text(CONFIG.replace("train.cs", "train.nl"))
    (home / "plain.yaml").write_text(CONFIG.replace("train.cs.gz", "train.cs"))
    mirror.add(TOK.url_of("train.en"), b"another text\n")
    (home / "en.yaml").write_text(CONFIG.replace("train.fr", "train.en"))
    for command, code, message in (
        (["multi40k"], 2, "no corpus 'multi40k'"),
        (["multi30k", "-l", "en-nl"], 2, "multi30k is not in 'en-nl'"),
        (["tatoeba-cmn-eng", "-l", "zh"], 2, "tatoeba-cmn-eng is not in 'zh'"),
        (["x.yaml", "-l", "en-de"], 2, "x.yaml says which files it needs"),
        (["none.yaml"], 2, "cannot read none.yaml"),
        (["demo.yaml"], 2, "demo.yaml uses no corpus that can be downloaded"),
        (["nl.yaml"], 2, "nl.yaml names train.nl.gz, which multi30k-tok does not have"),
        (["plain.yaml"], 2, "plain.yaml names train.cs, which multi30k-tok does not have"),
        (["en.yaml", "--mirror", mirror.url], 1, "train.en has SHA-256"),
    ):
        one_clear_error(run_nmt("download", *command, cwd=home), code, message)
    assert not list(home.rglob("*.gz"))
