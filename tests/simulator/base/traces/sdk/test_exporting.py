"""A missing collector is reported once, and nothing waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mqproto.simulator.base.traces.sdk.exporting import Watched, ended_within


class Collector(SpanExporter):
    """Accepts spans, or reports an error as the SDK does."""

    def __init__(self) -> None:
        self.trouble = ""
        self.error: Exception | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.error is not None:
            raise self.error
        if self.trouble:
            logging.getLogger("opentelemetry.exporter").error("Failed: %s", self.trouble)
        return SpanExportResult.FAILURE if self.trouble else SpanExportResult.SUCCESS


SPANS: Any = [object()] * 7


def test_it_is_said_once_when_it_goes_and_once_when_it_comes_back(capfd: pytest.CaptureFixture[str]) -> None:
    collector, lines, now_s = Collector(), list[tuple[str, dict[str, Any]]](), [0.0]
    watched = Watched(collector, lambda event, facts: lines.append((event, facts)), lambda: now_s[0])
    watched.export(SPANS)
    collector.trouble = "no such host\n" + "x" * 1_000
    for _ in range(100):
        assert watched.export(SPANS) is SpanExportResult.FAILURE
    [(event, facts)] = lines
    assert (event, facts["spans"]) == ("traces-not-exported", 7)
    assert facts["reason"].startswith("Failed: no such host\\n")
    assert len(facts["reason"]) <= 300
    collector.trouble = ""
    watched.export(SPANS)
    assert len(lines) == 1, "within a minute it may change its mind"
    now_s[0] = 60.0
    watched.export(SPANS)
    assert lines[1:] == [("traces-exported-again", {"lost_spans": 700})]
    watched.shutdown()
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_exporter_is_a_failure_as_any() -> None:
    collector, lines = Collector(), list[tuple[str, dict[str, Any]]]()
    watched = Watched(collector, lambda event, facts: lines.append((event, facts)), lambda: 0.0)
    collector.error = RuntimeError("odd")
    assert watched.export(SPANS) is SpanExportResult.FAILURE
    assert lines[0][1]["reason"] == "RuntimeError: odd"
    watched.shutdown()


def test_what_the_sdk_says_goes_nowhere_else_until_the_end(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(Collector(), lambda event, facts: None)
    logging.getLogger("opentelemetry.trace").warning("a stranger's state")
    assert not caplog.records
    watched.shutdown()
    logging.getLogger("opentelemetry.trace").warning("somebody else's")
    assert len(caplog.records) == 1


def test_the_end_waits_for_so_long() -> None:
    never = threading.Event()
    assert not ended_within(never.wait, 0.01)
    never.set()
    assert ended_within(lambda: None, 10)
