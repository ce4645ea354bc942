"""Without tracing, a step leaves its headers unchanged, and nothing about the step is kept."""

from __future__ import annotations

import pytest

from mqproto.simulator.base.traces.edges import NO_TRACES, UNTOLD


def test_what_nobody_asked_for_leaves_the_headers_as_they_are() -> None:
    headers = {"traceparent": "whatever"}
    with NO_TRACES.sending("orders", headers) as sending:
        assert sending.carried(headers) is headers
        sending.accepted("1", is_duplicate=False)
    with NO_TRACES.processing("orders", headers, "1", 1) as processing:
        processing.failed("system error", "no")
    assert sending is processing is UNTOLD


def test_an_error_goes_through_it() -> None:
    with pytest.raises(KeyError), UNTOLD:
        raise KeyError
