"""The paths for Prometheus and process supervisors: /metrics, /live and /ready.

The monitored process has other work to do. So the metrics, once collected, are reused for KEPT_S, regardless of how
many clients ask. After each SLICE_S of collecting, other tasks have a turn before the next family of metrics is
written. If they had a turn after every family, a scrape of a busy node would wait until the node has finished about
fifty batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from time import perf_counter
from typing import Final, NamedTuple

import trio
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from mqproto.simulator.base.http.server import Answer, Limits, Request, Server

KEPT_S: Final = 1.0
SLICE_S: Final = 0.001
LIMITS: Final = Limits(connections=32, head_bytes=8_192, body_s=5.0, grace_s=0.5)
PATHS: Final = ("/metrics", "/live", "/ready")
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"


class Monitored(NamedTuple):
    """The process that is monitored.

    collect: yields its current metrics, each computed when it is requested. A large family may come in several
        successive pieces.
    trouble: returns the reason why the process cannot do its work now; empty if it can.
    """

    collect: Callable[[], Iterable[Metric]]
    trouble: Callable[[], str]


class Monitoring:
    """Answers requests. `answer` is a handler for the server."""

    def __init__(self, monitored: Monitored, slice_s: float = SLICE_S) -> None:
        self._monitored = monitored
        self._slice_s = slice_s
        self._collecting = trio.Lock()
        self._text = b""
        self._until_s = -1.0

    async def answer(self, request: Request) -> Answer:
        """Answer GET and HEAD requests for the three paths."""
        path = request.target.partition("?")[0]
        if path not in PATHS:
            return plain(HTTPStatus.NOT_FOUND, "there are /metrics, /live and /ready")
        if request.method not in ("GET", "HEAD"):
            answer = plain(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} can be read, with GET, and nothing else")
            return answer._replace(headers=[*answer.headers, ("Allow", "GET, HEAD")])
        if path == "/metrics":
            return Answer(HTTPStatus.OK, [("Content-Type", METRICS)], await self._metrics())
        trouble = self._monitored.trouble() if path == "/ready" else ""
        if trouble:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, trouble)
        return plain(HTTPStatus.OK, path[1:])

    async def _metrics(self) -> bytes:
        async with self._collecting:
            if trio.current_time() >= self._until_s:
                self._until_s = trio.current_time() + KEPT_S
                parts, began_s = [], perf_counter()
                before = ""
                for family in self._monitored.collect():
                    text = generate_latest(_Only(family))
                    # Help and type are written once, however many pieces the family comes in.
                    parts.append(text.split(b"\n", 2)[2] if family.name == before else text)
                    before = family.name
                    if perf_counter() - began_s >= self._slice_s:
                        await trio.lowlevel.checkpoint()
                        began_s = perf_counter()
                self._text = b"".join(parts)
            return self._text


class _Only(Collector):
    """A registry of only one family, so that families can be written one at a time."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yield the family."""
        yield self._family


def plain(status: HTTPStatus, text: str) -> Answer:
    """Return an answer whose body is one line of text."""
    return Answer(status, [("Content-Type", TEXT)], f"{text}\n".encode())


def served(monitored: Monitored, log: FilteringBoundLogger) -> Server:
    """Return a server that answers requests about the monitored process."""
    return Server(
        Monitoring(monitored).answer, lambda fault: plain(fault.status, fault.text), LIMITS, log, paths=PATHS
    )
