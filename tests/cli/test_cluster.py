"""Translation on a Ray cluster: inputs, outputs and errors; with NMT_SOAK=1 also a cluster that loses a worker."""

import contextlib
import gzip
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET, FiveRun, one_clear_error, out_lines, run_nmt, started_nmt, wait_until

from nmt.errors import DataError, InputError
from nmt.text.lines import iter_lines

pytest.importorskip("ray.data", reason="no Ray: pip install 'nmt-trainer[ray]'")
fsspec = pytest.importorskip("fsspec")

from ray.exceptions import RayTaskError  # noqa: E402

from nmt.cli import cluster  # noqa: E402

SOAK = os.environ.get("NMT_SOAK", "") not in ("", "0")


def test_blocks_have_the_lines_of_a_file_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    n_lines = 2 * cluster.BLOCK_LINES + 1
    content = b"\xef\xbb\xbf" + b"".join(b"line %d\r\n" % i for i in range(n_lines - 2)) + b"\n\xff"
    (tmp_path / "in").write_bytes(content)
    (tmp_path / "in.gz").write_bytes(gzip.compress(content))
    for name in ("in", "in.gz"):
        blocks = list(cluster.read_blocks({"url": f"file://{tmp_path}/{name}", "file": 3}))
        assert [block["first"] for block in blocks] == [1, 1 + cluster.BLOCK_LINES, n_lines]
        assert {block["file"] for block in blocks} == {3}
        lines = [line for block in blocks for line in block["text"].split("\n")]
        assert lines == list(iter_lines([tmp_path / name]))
    assert "is not UTF-8 in 1 of 501 lines" in caplog.text
    (tmp_path / "in").write_bytes(b"")
    assert list(cluster.read_blocks({"url": f"file://{tmp_path}/in", "file": 0})) == []
    with pytest.raises(DataError, match="cannot read"):
        list(cluster.read_blocks({"url": f"file://{tmp_path}/absent", "file": 0}))


def test_every_file_below_a_path_gets_an_output_of_its_name(tmp_path: Path) -> None:
    for name in ("b.zh.gz", "a.zh", "sub/c.zh"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"")
    tasks, _ = cluster.find_tasks(f"{tmp_path}/in/", f"{tmp_path}/out")
    assert [task.url for task in tasks] == [f"file://{tmp_path}/in/{name}" for name in ("a.zh", "b.zh.gz", "sub/c.zh")]
    assert [task.output for task in tasks] == [f"{tmp_path}/out/{name}" for name in ("a.zh", "b.zh", "sub/c.zh")]
    ((one,), _) = cluster.find_tasks(f"{tmp_path}/in/a.zh", "memory://bucket/a.en")
    assert one == (f"file://{tmp_path}/in/a.zh", "/bucket/a.en")
    (tmp_path / "in" / "sub" / "c.zh.gz").write_bytes(b"")
    refused = [
        ("in", "out", "both as text and as .gz"),
        ("none", "out", "there are no files"),
        ("in", "in/en", "inside of"),
    ]
    for source, output, reason in refused:
        with pytest.raises(InputError, match=reason):
            cluster.find_tasks(f"{tmp_path}/{source}", f"{tmp_path}/{output}")
    with pytest.raises(InputError, match="cannot use nothing://bucket"):
        cluster.find_tasks("nothing://bucket", "out")


def test_files_are_written_whole_empty_ones_too(tmp_path: Path) -> None:
    blocks = [{"file": 1, "text": "a\n\nb"}, {"file": 1, "text": ""}, {"file": 3, "text": "c"}]
    memory = fsspec.filesystem("memory")
    for system, root in ((fsspec.filesystem("file"), str(tmp_path / "deep")), (memory, "/bucket")):
        tasks = [cluster.Task("", f"{root}/{i}") for i in range(5)]
        assert list(cluster.write_files(tasks, system, blocks)) == [3, 1, 1]
        assert [system.cat(task.output) for task in tasks] == [b"", b"a\n\nb\n\n", b"", b"c\n", b""]

        def fail() -> Iterator[dict[str, object]]:
            yield {"file": 0, "text": "new"}
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            list(cluster.write_files(tasks, system, fail()))
        assert system.cat(tasks[0].output) == b"", "an unfinished file does not replace the old one"


def test_a_model_is_packed_and_unpacked(five_run: FiveRun, tmp_path: Path) -> None:
    path = cluster.unpack(cluster.pack(five_run.run), tmp_path / "0")
    assert path.read_bytes() == five_run.model_file.read_bytes()
    assert out_lines(run_nmt("translate", "-m", path, SOURCE[0])) == [TARGET[0]]


def test_what_a_cluster_cannot_do_is_refused(tmp_path: Path) -> None:
    common = ["translate", "--ray", "local", "-i", "in", "-o", "out"]
    for option in (["--resume"], ["--shard", "0/2"], ["--stream"]):
        one_clear_error(run_nmt(*common, *option, cwd=tmp_path), 2, f"{option[0]} does not go with --ray")
    one_clear_error(run_nmt(*common[:-2], cwd=tmp_path), 2, "--ray needs -i and -o")


def test_our_own_errors_of_workers_are_told() -> None:
    raised = DataError("cannot read x: why", hint="check it")
    raised.args = (f"{raised}\nFailed to apply UDF transform",)  # as Ray does
    wrapped = RayTaskError("read_blocks", "Traceback: ...", raised).as_instanceof_cause()
    assert isinstance(wrapped, DataError)
    found = cluster.cause_of(wrapped)
    assert type(found) is DataError
    assert (str(found), found.hint) == ("cannot read x: why", "check it")
    assert cluster.cause_of(RayTaskError("f", "Traceback: ...", ValueError("no"))) is None


def test_no_cluster_is_a_clear_error(five_run: FiveRun, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    args = ["translate", "-m", five_run.run, "-i", "in", "-o", "out", "--ray", "auto"]
    one_clear_error(run_nmt(*args, cwd=tmp_path), 2, "no Ray cluster at auto")
    assert not (tmp_path / "out").exists()


# --- with a cluster -------------------------------------------------------------------


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the ids and names of all descendants of a process."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            child = int(status.parent.name)
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                yield child, (status.parent / "cmdline").read_bytes().partition(b"\0")[0].decode()
                yield from descendants(child)


@pytest.mark.skipif(not SOAK, reason="a cluster takes a minute; NMT_SOAK=1 tests it")
def test_a_cluster_that_loses_a_worker_gives_the_text_of_one_process(five_run: FiveRun, tmp_path: Path) -> None:
    words = " ".join(SOURCE).split()
    (tmp_path / "in").mkdir()
    sampled = ["--sample", "--temperature", 2, "--max-length", 8]  # samples depend on the line number
    for i in range(4):
        lines = [" ".join(words[n % len(words) :][: n % 5 + 1]) for n in range(i, 1_000 + i)]
        (tmp_path / "in" / f"{i}.zh").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    args = ["translate", "-m", five_run.run, *sampled]
    expected = [out_lines(run_nmt(*args, "-i", f"in/{i}.zh", cwd=tmp_path)) for i in range(4)]

    cluster_args = [*args, "-i", f"file://{tmp_path}/in", "-o", "out", "--ray", "local", "--processes", 2]
    with started_nmt(*cluster_args, cwd=tmp_path, stdin=subprocess.DEVNULL) as process:
        wait_until(lambda: (tmp_path / "out" / "0.zh").exists(), running=process)
        workers = [pid for pid, name in descendants(process.pid) if name.startswith("ray::MapWorker")]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        assert not (tmp_path / "out" / "3.zh").exists(), "it was killed in the middle"
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, stderr.decode()
    assert stdout == b""
    assert "out/3.zh: 1000 lines" in stderr.decode()
    for i, lines in enumerate(expected):
        assert (tmp_path / "out" / f"{i}.zh").read_text(encoding="utf-8").split("\n")[:-1] == lines
