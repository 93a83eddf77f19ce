"""The metrics of a server, which Prometheus collects."""

from prometheus_client import CollectorRegistry, Gauge, Histogram

LINES = [1, 2, 4, 8, 16, 32, 64, 128]  # bucket bounds of the histogram `batch_lines`


class Metrics:
    """The counts and times of one server, in a Prometheus registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "nmt_request_seconds", "Time to answer a request", ["path", "status"], registry=self.registry
        )
        self.batch_lines = Histogram("nmt_batch_lines", "Lines of a search", buckets=LINES, registry=self.registry)
        self.waiting = Gauge("nmt_requests_waiting", "Requests that wait for a model", registry=self.registry)
