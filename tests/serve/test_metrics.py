"""The time of requests by stage."""

import re

import pytest
from conftest import SOURCE
from served import Client, served

from nmt.serve import batcher
from nmt.translate.translator import Translator

STAGE = re.compile(r'nmt_stage_seconds_sum\{stage="(\w*)"\} (\S+)')
REQUEST = re.compile(r'nmt_request_seconds_sum\{path="/v1/translate",status="\d+"\} (\S+)')


def stages_of(client: Client) -> dict[str, float]:
    metrics = client.get("/metrics").body.decode()
    stages = {}
    for stage, seconds in STAGE.findall(metrics):
        stages[stage] = float(seconds)
    return stages


def request_seconds(client: Client) -> float:
    metrics = client.get("/metrics").body.decode()
    (seconds,) = REQUEST.findall(metrics)
    return float(seconds)


def test_the_stages_of_a_request_take_its_time(translator: Translator) -> None:
    with served(translator) as client:
        client.v1(SOURCE)
        stages = stages_of(client)
        assert set(stages) == {"wait", "prepare", "search", "restore"}
        assert min(stages.values()) > 0
        assert 0.5 * request_seconds(client) < sum(stages.values()) <= request_seconds(client)


def test_a_long_job_waits_and_has_turns(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher, "MAX_SHORT", 3)
    with served(translator) as client:
        client.v1(SOURCE)
        stages = stages_of(client)
        assert set(stages) == {"wait", "turns"}
        assert stages["turns"] > stages["wait"]
        assert sum(stages.values()) <= request_seconds(client)


def test_a_request_that_fails_counts(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "start", lambda *_: 1 // 0)
    with served(translator) as client:
        assert client.v1(SOURCE).status == 500
        assert set(stages_of(client)) == {"wait", "prepare"}
