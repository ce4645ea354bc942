"""What gateways and triggers report about the messages that they send and process.

By default the reports are ignored; if traces are requested, sdk/messaging.py takes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self


class Step:
    """The processing of one message at one edge, which lasts as long as the context; an error may end it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End the step."""

    def carried(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the message's headers for the steps after this one."""
        return headers

    def accepted(self, message: str, *, is_duplicate: bool) -> None:
        """Report that the message with this identifier is at its first node, now or since an earlier request."""

    def failed(self, error_type: str, reason: str = "") -> None:
        """Report a failure: its type, which is one of a few, and the reason in words."""


class EdgeTraces:
    """Receives the reports about each message, and ignores them."""

    def sending(self, queue: str, headers: Mapping[str, str]) -> Step:
        """Begin the step of a producer's request that had these headers."""
        return UNTOLD

    def processing(self, queue: str, headers: Mapping[str, str], message: str, attempt: int) -> Step:
        """Begin the step of a consumer that is called for a message."""
        return UNTOLD


UNTOLD: Final = Step()
NO_TRACES: Final = EdgeTraces()
