"""Step 3 of duplicate detection: a document resolver says whether a message has been processed.

A document resolver is an HTTP endpoint or a Python function. Messages are posted to the endpoint as they are to a
consumer, and it answers, for example, `{"status": "NEW"}`; the function takes a Call and returns the word. The words
are those of "Execute Document Resolver Service" in "Summary of Duplicate Detection Process for JMS Triggers". If the
resolver cannot be asked now, it is asked when the message is delivered again. This is the case if there is no
connection or no answer in time, after a status 5xx, 408, 425 or 429, or if the function raises OSError. If it fails in
another way, or gives another answer, the message is in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import trio

from mqproto.edge.exactlyonce import Verdict
from mqproto.simulator.edges.httpclient import HttpError
from mqproto.simulator.edges.trigger.callee import (
    SPARE_THREADS,
    TEMPORARY,
    Call,
    HttpEndpoint,
    called,
    in_words,
    object_in,
    one_line,
    retry_after_s,
)

STATUSES: Final = {one.name: one for one in (Verdict.NEW, Verdict.DUPLICATE, Verdict.IN_DOUBT)}
"""The words with which a resolver may answer."""


class Resolution(NamedTuple):
    """A resolver's answer about a message.

    verdict: None if the resolver could not be asked.
    reason: why the resolver could not be asked, or why the message counts as in doubt although the resolver did not
        answer IN_DOUBT; otherwise empty.
    """

    verdict: Verdict | None
    reason: str = ""
    retry_after_s: float = 0.0


class Resolver(Protocol):
    """Determines whether a message has been processed."""

    async def resolve(self, call: Call) -> Resolution:
        """Return what the resolver says about a message. The caller limits the time."""
        ...


class HttpResolver:
    """A resolver that is asked over HTTP."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint

    async def resolve(self, call: Call) -> Resolution:
        """Post the message; return the answer."""
        try:
            response = await self._endpoint.post(call)
        except HttpError as error:
            return Resolution(None, f"the resolver: {in_words(error)}")
        status, reason = response.status, f"the resolver answers HTTP {response.status}"
        if status >= 500 or status in TEMPORARY:
            return Resolution(None, reason, retry_after_s(response.headers.get("Retry-After", "")))
        if not 200 <= status < 300:
            return Resolution(Verdict.IN_DOUBT, reason)
        return _said((object_in(response) or {}).get("status"))


class PythonResolver:
    """A resolver that is a Python function, of either kind that a `PythonCallee` takes.

    Args:
        parallel: how many calls may run at the same time.
    """

    def __init__(self, function: Callable[[Call], Any], parallel: int = 1) -> None:
        self._function = function
        self._limiter = trio.CapacityLimiter(parallel + SPARE_THREADS)

    async def resolve(self, call: Call) -> Resolution:
        """Call the function; return its answer."""
        try:
            return _said(await called(self._function, call, self._limiter))
        except OSError as error:
            return Resolution(None, one_line(f"the resolver: {type(error).__name__}: {error}"))
        except Exception as error:
            return Resolution(
                Verdict.IN_DOUBT, one_line(f"the resolver failed: {type(error).__name__}: {error}")
            )


def _said(status: object) -> Resolution:
    verdict = STATUSES.get(status) if isinstance(status, str) else None
    if verdict is None:
        return Resolution(
            Verdict.IN_DOUBT, one_line(f"the resolver says {status!r}: no {', '.join(STATUSES)}")
        )
    return Resolution(verdict)
