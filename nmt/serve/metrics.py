"""The metrics of a server, which Prometheus collects."""

import time
from collections import defaultdict

from prometheus_client import CollectorRegistry, Gauge, Histogram

LINES = [1, 2, 4, 8, 16, 32, 64, 128]  # bucket bounds of the histogram `batch_lines`


class Metrics:
    """The counts and times of one server, in a Prometheus registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "nmt_request_seconds", "Time to answer a request", ["path", "status"], registry=self.registry
        )
        self.stages = Histogram(
            "nmt_stage_seconds",
            "Time of a request in each stage: wait, prepare, search, restore; of a long job: wait, turns",
            ["stage"],
            buckets=[0.001, 0.01, 0.1, 1, 10],  # few, because there are five stages
            registry=self.registry,
        )
        self.batch_lines = Histogram("nmt_batch_lines", "Lines of a search", buckets=LINES, registry=self.registry)
        self.waiting = Gauge("nmt_requests_waiting", "Requests that wait for a model", registry=self.registry)

    def observe_stages(self, stopwatch: "Stopwatch") -> None:
        """Count the time of a request that has ended."""
        stopwatch.begin("")
        # A copy, because the thread of a canceled request may still begin a stage.
        for stage, seconds in [*stopwatch.seconds.items()]:
            self.stages.labels(stage).observe(seconds)


class Stopwatch:
    """The seconds that a request spends in each stage."""

    stage = "wait"

    def __init__(self) -> None:
        self.since = time.monotonic()
        self.seconds = defaultdict[str, float](float)

    def begin(self, stage: str) -> None:
        """End the present stage, and begin another one. A stage may come several times."""
        now = time.monotonic()
        self.seconds[self.stage] += now - self.since
        self.stage, self.since = stage, now
