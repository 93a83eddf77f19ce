"""Serving: requests of one sentence each to `nmt serve`, from one client, from many at once, and beside documents."""

import contextlib
import http.client
import io
import itertools
import json
import random
import statistics
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

from decoding import prepare
from measure import NMT, Options, Sample, Table, interleaved, started

CLIENTS = (1, 10, 50)
HEADERS = {"Content-Type": "application/json"}
N_DOCUMENTS, N_PARAGRAPHS = 3, 2200
N_REQUESTS = 100  # of a series
PAUSE_S = 5.0  # between two series of requests beside documents
NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
FORM = {"Content-Type": "multipart/form-data; boundary=limit"}


def ask(connection: http.client.HTTPConnection, text: str) -> tuple[float, str]:
    """Have a text translated; return the milliseconds that it took, and what is wrong ("" if nothing is)."""
    start = time.perf_counter()
    connection.request("POST", "/v1/translate", json.dumps({"q": text}), HEADERS)
    answer = connection.getresponse()
    body = answer.read()
    milliseconds = 1000 * (time.perf_counter() - start)
    return milliseconds, "" if answer.status == 200 else body.decode()


def asked(port: int, sources: list[str], n_clients: int, seconds: float) -> Sample:
    """Send requests for some seconds; return requests per second, and percentiles of the response time."""
    texts = itertools.cycle(sources)
    times: list[float] = []
    problems: list[str] = []
    end = time.monotonic() + seconds

    def be_client() -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            while time.monotonic() < end:
                milliseconds, problem = ask(connection, next(texts))
                times.append(milliseconds)
                if problem:
                    problems.append(problem)

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


# --- beside documents -------------------------------------------------------------------------------------


def word_file(sources: list[str], seed: int, n_paragraphs: int) -> bytes:
    """A Word file; each paragraph is a sentence in which some characters are bold."""
    draw = random.Random(seed)
    paragraphs = []
    for _ in range(n_paragraphs):
        text = draw.choice(sources)[:80]  # so that the file is not too large for the server
        start = draw.randrange(len(text))
        end = draw.randrange(start, len(text)) + 1
        runs = [("", text[:start]), ("<w:rPr><w:b/></w:rPr>", text[start:end]), ("", text[end:])]
        written = [f'<w:r>{style}<w:t xml:space="preserve">{escape(part)}</w:t></w:r>' for style, part in runs if part]
        paragraphs.append(f"<w:p>{''.join(written)}</w:p>")
    text = f'<w:document xmlns:w="{NAMESPACE}"><w:body>{"".join(paragraphs)}</w:body></w:document>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", text)
    return file.getvalue()


def upload(port: int, document: bytes, source: str, target: str) -> None:
    """Let the server translate a document. Raises RuntimeError if it does not."""
    fields = {"source": source, "target": target}
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(b'name="file"; filename="a.docx"\r\n\r\n' + document)
    body = b"".join(b"--limit\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=3600)) as connection:
        connection.request("POST", "/translate_file", body + b"--limit--\r\n", FORM)
        answer = connection.getresponse()
        said = answer.read().decode()
    if answer.status != 200:
        raise RuntimeError(f"a document failed: {said}")


def series(port: int, sources: list[str], n_clients: int) -> Sample:
    """Send `N_REQUESTS` from clients that wait for each answer; return seconds, and times of the responses."""
    times: list[float] = []
    texts = itertools.cycle(sources)

    def be_client() -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=600)) as connection:
            for _ in range(N_REQUESTS // n_clients):
                milliseconds, problem = ask(connection, next(texts))
                times.append(milliseconds)
                if problem:
                    raise RuntimeError(f"a request failed: {problem}")

    start = time.perf_counter()
    with ThreadPoolExecutor(n_clients) as pool:
        for client in [pool.submit(be_client) for _ in range(n_clients)]:
            client.result()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "p50_ms": statistics.median(times), "max_ms": max(times)}


class Neighbors:
    """Requests and documents at one server, alone and beside each other."""

    def __init__(self, port: int, sources: list[str]) -> None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/v1/models")
            (model,) = json.loads(connection.getresponse().read())["models"]
        self.ask = partial(series, port, sources)
        self.send = partial(upload, port, source=model["source"], target=model["target"])
        self.documents = [word_file(sources, seed, N_PARAGRAPHS) for seed in range(N_DOCUMENTS)]
        self.requests: dict[str, list[Sample]] = {}
        self.uploads: dict[str, list[Sample]] = {}

    def measure(self, n_clients: int) -> None:
        """Send the documents in a row, with a series of requests after each; then all at once, with series beside."""
        name = f"{n_clients} client" + "s" * (n_clients > 1)
        seconds = 0.0
        for document in self.documents:
            start = time.perf_counter()
            self.send(document)
            seconds += time.perf_counter() - start
            self.requests.setdefault(f"{name}, alone", []).append(self.ask(n_clients))
        self.uploads.setdefault("in a row, alone", []).append({"seconds": seconds})
        start = time.perf_counter()
        with ThreadPoolExecutor(N_DOCUMENTS) as pool:
            uploads = [pool.submit(self.send, document) for document in self.documents]
            while not all(one.done() for one in uploads):
                self.requests.setdefault(f"{name}, beside documents", []).append(self.ask(n_clients))
                time.sleep(PAUSE_S)
            for one in uploads:
                one.result()
        row = self.uploads.setdefault(f"at once, beside series of {name}", [])
        row.append({"seconds": time.perf_counter() - start})


def beside_documents(options: Options) -> list[Table]:
    """Series of requests alone and beside documents, and documents alone and beside series of requests."""
    contest = prepare(options)
    with server(contest.run, options.scratch) as port:
        neighbors = Neighbors(port, contest.sources)
        neighbors.ask(1)  # warm-up
        for _ in range(options.rounds):
            for n_clients in (1, 4):
                neighbors.measure(n_clients)
    note = f"{N_REQUESTS} requests of one sentence; beside documents, a series every {PAUSE_S:g} s from their start on."
    other = f"{N_DOCUMENTS} Word files of {N_PARAGRAPHS:,} paragraphs with something in bold each."
    command = [*NMT, "serve", "-m", contest.run]
    return [
        Table("Requests", note, dict.fromkeys(neighbors.requests, command), neighbors.requests, "seconds", []),
        Table("Documents", other, dict.fromkeys(neighbors.uploads, command), neighbors.uploads, "seconds", []),
    ]
