"""What gateways and triggers report about the messages that they send and process.

By default, the reports are ignored. If traces are requested, sdk/messaging.py receives the reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self


class Step:
    """The processing of one message at one edge.

    It is a context manager. The step ends when the block ends, even with an error.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End the step."""

    def carried(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the message's headers in the form in which the steps after this one get them."""
        return headers

    def accepted(self, message: str, *, is_duplicate: bool) -> None:
        """Report that the message with this identifier is at its first node.

        is_duplicate: whether it has been there since an earlier request.
        """

    def failed(self, error_type: str, reason: str = "") -> None:
        """Report a failure: its type, which is one of a few, and the reason in words."""


class EdgeTraces:
    """Receives the reports about each message, and does nothing with them."""

    def sending(self, queue: str, headers: Mapping[str, str]) -> Step:
        """Begin the step for a producer's request that had these headers."""
        return UNTOLD

    def processing(self, queue: str, headers: Mapping[str, str], message: str, attempt: int) -> Step:
        """Begin the step for a consumer that is called with a message."""
        return UNTOLD


UNTOLD: Final = Step()
NO_TRACES: Final = EdgeTraces()
