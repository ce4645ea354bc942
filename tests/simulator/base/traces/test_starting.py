"""If traces are requested, they start; if a package for them is missing, one line names it."""

from __future__ import annotations

import sys

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.traces.edges import NO_TRACES
from mqproto.simulator.base.traces.starting import edge_traces, tracing
from tests.simulator.running import Log

URL = "http://127.0.0.1:9"
INSTALL = "is not installed: pip install 'mqproto[traces]'"


@pytest.fixture
def without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("mqproto.simulator.base.traces.sdk.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.setitem(sys.modules, name, None)


async def test_nobody_who_has_not_asked_has_a_tracer() -> None:
    log = Log()
    async with (
        tracing("", "shop", node_log(log, "shop")) as tracer,
        edge_traces("", "x", node_log(log, "x")) as edge,
    ):
        assert tracer is None
        assert edge is NO_TRACES
    assert log.getvalue() == ""


async def test_who_asks_has_one_and_the_log_says_where_spans_go() -> None:
    log = Log()
    url = "http://me:secret@127.0.0.1:9"
    async with tracing(url, "shop", node_log(log, "shop")) as tracer:
        assert tracer is not None
    assert log.lines("traces")[0]["endpoint"] == URL
    assert "secret" not in log.getvalue()


async def test_who_types_it_without_the_library_is_told_what_to_install(without_the_sdk: None) -> None:
    with pytest.raises(UsageError) as error:
        async with tracing(URL, "shop", node_log(Log(), "shop")):
            pytest.fail("it has begun")
    assert str(error.value).startswith("traces: opentelemetry")
    assert str(error.value).endswith(INSTALL)


async def test_variables_that_may_be_meant_for_others_stop_nobody(
    without_the_sdk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", URL)
    log = Log()
    async with tracing("", "shop", node_log(log, "shop")) as tracer:
        assert tracer is None
    [line] = log.lines("traces-off")
    assert line["reason"].endswith(INSTALL)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    async with edge_traces("", "shop", node_log(log, "shop")) as edge:
        assert edge is NO_TRACES
    assert "zipkin" in log.lines("traces-off")[1]["reason"]
