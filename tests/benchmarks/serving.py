"""Serving: requests of one sentence each to `nmt serve`, from one client, from many at once."""

import contextlib
import http.client
import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from decoding import prepare
from measure import NMT, Options, Sample, Table, interleaved, started

CLIENTS = (1, 10, 50)
JSON = {"Content-Type": "application/json"}


@contextlib.contextmanager
def server(run: Path, scratch: Path) -> Iterator[int]:
    """`nmt serve` with a run's model; yields its port."""
    with started([*NMT, "serve", "-m", run, "--port", "0"], scratch) as process:
        while "serving on" not in (messages := process.log.read_text()):
            if process.process.poll() is not None:
                process.wait()
            time.sleep(0.1)
        yield int(messages.rpartition(":")[2])


def connect(port: int) -> contextlib.closing[http.client.HTTPConnection]:
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=3600))


def answer(connection: http.client.HTTPConnection) -> str:
    """The body of the next answer. Raises RuntimeError if the request has failed."""
    response = connection.getresponse()
    body = response.read().decode()
    if response.status != 200:
        raise RuntimeError(f"a request failed: {body}")
    return body


def rate(port: int, sources: list[str], n_clients: int, seconds: float) -> Sample:
    """Let clients translate a sentence each, again and again; return requests per second and their times."""
    texts = itertools.cycle(sources)
    times_ms = list[float]()
    begin = time.perf_counter()

    def be_client() -> None:
        with connect(port) as connection:
            while time.perf_counter() - begin < seconds:
                body = json.dumps({"q": next(texts)})
                start = time.perf_counter()
                connection.request("POST", "/v1/translate", body, JSON)
                answer(connection)
                times_ms.append(1000 * (time.perf_counter() - start))

    with ThreadPoolExecutor(n_clients) as pool:
        for client in [pool.submit(be_client) for _ in range(n_clients)]:
            client.result()
    n = len(times_ms)
    requests_s = n / (time.perf_counter() - begin)
    times_ms.sort()
    return {"requests_s": requests_s, "p50_ms": times_ms[n // 2], "p99_ms": times_ms[n * 99 // 100]}


def throughput(options: Options) -> list[Table]:
    """Requests per second to one server."""
    contest = prepare(options)
    measures = {}
    with server(contest.run, options.scratch) as port:
        for n in CLIENTS:
            name = "1 client" if n == 1 else f"{n} clients"
            measures[name] = partial(rate, port, contest.sources, n, options.seconds)
        rate(port, contest.sources, CLIENTS[-1], seconds=1)  # warm-up
        samples = interleaved(measures, options.rounds)
    note = "Requests of one sentence of the test set, beam 5; each client waits for an answer before the next request."
    command = [*NMT, "serve", "-m", contest.run]
    commands = dict.fromkeys(measures, command)
    return [Table("Serving", note, commands, samples, "requests_s", ["1 client"])]
