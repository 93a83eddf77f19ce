"""Serving: requests of one sentence each to `nmt serve`, from one client and from many at once."""

import contextlib
import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from decoding import prepare
from measure import NMT, Options, Sample, Table, interleaved, started

CLIENTS = (1, 10, 50)
HEADERS = {"Content-Type": "application/json"}


def asked(port: int, sources: list[str], n_clients: int, seconds: float) -> Sample:
    """Send requests for some seconds; return requests per second, and percentiles of the response time."""
    texts = itertools.cycle(sources)
    times: list[float] = []
    problems: list[str] = []
    end = time.monotonic() + seconds

    def be_client() -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            while time.monotonic() < end:
                start = time.perf_counter()
                connection.request("POST", "/v1/translate", json.dumps({"q": next(texts)}), HEADERS)
                answer = connection.getresponse()
                body = answer.read()
                times.append(1000 * (time.perf_counter() - start))
                if answer.status != 200:
                    problems.append(body.decode())

    threads = [threading.Thread(target=be_client) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise RuntimeError(f"{len(problems)} requests failed: {problems[0]}")
    times.sort()
    taken = seconds + times[-1] / 1000  # the last requests end after the window
    return {"requests_s": len(times) / taken, "p50_ms": times[len(times) // 2], "p99_ms": times[int(len(times) * 0.99)]}


@contextlib.contextmanager
def server(run: Path, scratch: Path) -> Iterator[int]:
    """`nmt serve` with a run's model; yields its port."""
    with started([*NMT, "serve", "-m", run, "--port", "0"], scratch) as process:
        while "serving on" not in (said := (scratch / "stderr.log").read_text()):
            if process.process.poll() is not None:
                process.wait()
            time.sleep(0.1)
        yield int(said.rpartition(":")[2])


def throughput(options: Options) -> list[Table]:
    """Requests per second to one server."""
    contest = prepare(options)
    with server(contest.run, options.scratch) as port:
        ask = partial(asked, port, contest.sources, seconds=options.seconds)
        measures = {f"{n} client{'s' * (n > 1)}": partial(ask, n_clients=n) for n in CLIENTS}
        ask(n_clients=CLIENTS[-1], seconds=1)  # warm-up
        samples = interleaved(measures, options.rounds)
    note = "Requests of one sentence of the test set, beam 5; each client waits for an answer before the next request."
    command = [*NMT, "serve", "-m", contest.run]
    return [Table("Serving", note, dict.fromkeys(measures, command), samples, "requests_s", ["1 client"])]
