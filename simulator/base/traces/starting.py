"""Starts and stops a process's spans, if anybody has asked for them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program.extras import to_install
from mqproto.simulator.base.traces.asked import SpanDestination, wish_in
from mqproto.simulator.base.traces.edges import NO_TRACES, EdgeTraces

if TYPE_CHECKING:
    from mqproto.simulator.base.traces.sdk.tracer import Tracer


@asynccontextmanager
async def tracing(typed: str, who: str, log: FilteringBoundLogger) -> AsyncIterator[Tracer | None]:
    """Yield this process's tracer; None if nobody has asked for spans.

    At the end, try for a while to send the remaining spans.

    Args:
        typed: as for `wish_in`.
        who: the name of the process in the log.

    Raises:
        UsageError: the given URL cannot be used. Unusable variables only cause a warning.
    """
    tracer: Tracer | None = None
    try:
        wish = wish_in(typed, os.environ)
        if wish is not None:
            tracer = _tracer(wish, who, log)
            log.info("traces", endpoint=wish.shown)
    except UsageError as error:
        if typed:
            raise
        log.warning("traces-off", reason=str(error))
    try:
        yield tracer
    finally:
        if tracer is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(tracer.close)


def _tracer(wish: SpanDestination, who: str, log: FilteringBoundLogger) -> Tracer:
    try:
        from mqproto.simulator.base.traces.sdk.tracer import started
    except ModuleNotFoundError as missing:
        raise UsageError(f"traces: {to_install(missing, ())}") from None
    return started(wish, who, log)


@asynccontextmanager
async def edge_traces(typed: str, who: str, log: FilteringBoundLogger) -> AsyncIterator[EdgeTraces]:
    """Yield the traces of a gateway or a trigger, which do nothing if nobody has asked for them."""
    async with tracing(typed, who, log) as tracer:
        if tracer is None:
            yield NO_TRACES
        else:
            from mqproto.simulator.base.traces.sdk.messaging import Spans

            yield Spans(tracer)
