"""Sends spans to a collector in batches, in a thread of the SDK, so that nothing waits for it.

If a collector is down, the spans of that time are lost, and the log gets one line. The SDK's own messages, of which
there is one for each batch, are dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mqproto.base.foreign import shown

SAID_AGAIN_S: Final = 60.0
"""The minimum number of seconds between two log lines about the same collector."""
CLOSE_S: Final = 2.0
"""How many seconds a process that is ending waits for the collector."""
REASON_LIMIT: Final = 300

Say = Callable[[str, dict[str, str | int]], None]
"""A function that takes a line for the log. It may be called in any thread."""


class Watched(SpanExporter):
    """An exporter that reports when it fails, and when it works again.

    Args:
        say: called in the SDK's thread.
        now_s: a clock.
    """

    def __init__(self, inner: SpanExporter, say: Say, now_s: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._say = say
        self._now_s = now_s
        self._heard = _Heard()
        self._said_s: float | None = None
        self._is_down = False
        self._lost = 0
        self._logger = logging.getLogger("opentelemetry")
        self._propagated, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self._heard)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch of spans."""
        try:
            result = self._inner.export(spans)
        except Exception as error:  # Whatever the error is, the next batch may succeed.
            self._heard.last, result = f"{type(error).__name__}: {error}", SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
        now_s = self._now_s()
        if (result is SpanExportResult.SUCCESS) != self._is_down:
            return result  # Nothing has changed.
        if self._said_s is not None and now_s - self._said_s < SAID_AGAIN_S:
            return result
        self._said_s, self._is_down = now_s, not self._is_down
        if self._is_down:
            reason = shown(self._heard.last, REASON_LIMIT) or "the collector did not take them"
            self._say("traces-not-exported", {"reason": reason, "spans": self._lost})
        else:
            self._say("traces-exported-again", {"lost_spans": self._lost})
            self._lost = 0
        return result

    def shutdown(self) -> None:
        """Shut the exporter down, and restore the SDK's logger."""
        self._inner.shutdown()
        self._logger.removeHandler(self._heard)
        self._logger.propagate = self._propagated

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the inner exporter. This exporter itself holds nothing back."""
        return self._inner.force_flush(timeout_millis)


class _Heard(logging.Handler):
    """Keeps the last message of the SDK."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def otlp(endpoint: str) -> SpanExporter:
    """Return an exporter for OTLP over HTTP.

    endpoint: where it sends the spans; if it is empty, the endpoint in the environment.
    """
    return OTLPSpanExporter(endpoint or None)


def ended_within(shutdown: Callable[[], object], patience_s: float = CLOSE_S) -> bool:
    """Shut down. Return whether the last spans were sent in time.

    The shutdown has a thread of its own, which ends with the process if it has not ended before.
    """
    closing = threading.Thread(target=shutdown, name="traces", daemon=True)
    closing.start()
    closing.join(patience_s)
    return not closing.is_alive()
