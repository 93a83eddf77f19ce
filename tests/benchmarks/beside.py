"""Requests of one sentence each beside documents at one server, and documents beside requests."""

import io
import json
import random
import time
import zipfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from xml.sax.saxutils import escape

from decoding import prepare
from measure import NMT, Options, Sample, Table
from serving import answer, connect, server, times_of_requests

N_DOCUMENTS = 3
N_PARAGRAPHS = 2200
N_REQUESTS = 100  # of a series
PAUSE_S = 5.0  # between two series of requests beside documents
NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
FORM = {"Content-Type": "multipart/form-data; boundary=limit"}


def run_of_text(text: str, style: str = "") -> str:
    return f'<w:r>{style}<w:t xml:space="preserve">{escape(text)}</w:t></w:r>'


def word_file(sources: list[str], seed: int) -> bytes:
    """A Word file; each paragraph is a sentence in which some characters are bold."""
    draw = random.Random(seed)
    body = ""
    for _ in range(N_PARAGRAPHS):
        text = draw.choice(sources)[:80]  # so that the file is not too large for the server
        middle = draw.randrange(len(text))
        bold = run_of_text(text[middle:], "<w:rPr><w:b/></w:rPr>")
        body += f"<w:p>{run_of_text(text[:middle])}{bold}</w:p>"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        document = f'<w:document xmlns:w="{NAMESPACE}"><w:body>{body}</w:body></w:document>'
        archive.writestr("word/document.xml", document)
    return file.getvalue()


class Neighbors:
    """Requests and documents at one server, alone and beside each other; measurements by name."""

    def __init__(self, port: int, sources: list[str]) -> None:
        self.port = port
        self.sources = sources
        self.documents = [word_file(sources, seed) for seed in range(N_DOCUMENTS)]
        self.requests = defaultdict[str, list[Sample]](list)
        self.uploads = defaultdict[str, list[Sample]](list)
        with connect(port) as connection:
            connection.request("GET", "/v1/models")
            (self.model,) = json.loads(answer(connection))["models"]

    def upload(self, document: bytes) -> None:
        """Let the server translate a document."""
        body = b""
        for name in ("source", "target"):
            body += f"--limit\r\nContent-Disposition: form-data; name={name}\r\n\r\n{self.model[name]}\r\n".encode()
        body += b"--limit\r\nContent-Disposition: form-data; name=file; filename=a.docx\r\n\r\n" + document
        with connect(self.port) as connection:
            connection.request("POST", "/translate_file", body + b"\r\n--limit--\r\n", FORM)
            answer(connection)

    def series(self, n_clients: int) -> Sample:
        """Send `N_REQUESTS` from clients that wait for each answer; return seconds, and times of the responses."""
        n_each = N_REQUESTS // n_clients
        start = time.perf_counter()
        times_ms = times_of_requests(self.port, self.sources, n_clients, lambda n_sent: n_sent < n_each)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "p50_ms": median(times_ms), "max_ms": times_ms[-1]}

    def measure(self, n_clients: int) -> None:
        """Send the documents in a row, with a series of requests after each; then all at once, with series beside."""
        clients = "1 client" if n_clients == 1 else f"{n_clients} clients"

        # 1. Alone.
        seconds = 0.0
        for document in self.documents:
            start = time.perf_counter()
            self.upload(document)
            seconds += time.perf_counter() - start
            self.requests[f"{clients}, alone"].append(self.series(n_clients))
        self.uploads["in a row, alone"].append({"seconds": seconds})

        # 2. Beside each other.
        start = time.perf_counter()
        with ThreadPoolExecutor(N_DOCUMENTS) as pool:
            uploads = [pool.submit(self.upload, document) for document in self.documents]
            while not all(upload.done() for upload in uploads):
                self.requests[f"{clients}, beside documents"].append(self.series(n_clients))
                time.sleep(PAUSE_S)
            for upload in uploads:
                upload.result()
        seconds = time.perf_counter() - start
        self.uploads[f"at once, beside series of {clients}"].append({"seconds": seconds})


def requests_and_documents(options: Options) -> list[Table]:
    """Series of requests alone and beside documents, and documents alone and beside series of requests."""
    contest = prepare(options)
    with server(contest.run, options.scratch) as port:
        neighbors = Neighbors(port, contest.sources)
        neighbors.series(1)  # warm-up
        for _ in range(options.rounds):
            neighbors.measure(1)
            neighbors.measure(4)
    note = f"{N_REQUESTS} requests of one sentence; beside documents, a series every {PAUSE_S:g} s from their start on."
    command = [*NMT, "serve", "-m", contest.run]
    commands = dict.fromkeys(neighbors.requests, command)
    requests = Table("Requests", note, commands, neighbors.requests, "seconds", [])
    note = f"{N_DOCUMENTS} Word files of {N_PARAGRAPHS:,} paragraphs with something in bold each."
    commands = dict.fromkeys(neighbors.uploads, command)
    return [requests, Table("Documents", note, commands, neighbors.uploads, "seconds", [])]
