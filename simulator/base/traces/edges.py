"""What a gateway and a trigger tell of the messages that they hand in and process.

By default nobody listens. Where traces are asked for it is sdk/messaging.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self


class Step:
    """One message at one edge, from when it is entered as a context until that is left, which an error may do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """It is over."""

    def carried(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of the message, which those after this step go on with."""
        return headers

    def accepted(self, message: str, *, is_duplicate: bool) -> None:
        """The message is at its first node, now or since an earlier request, and this is its identifier."""

    def failed(self, error_type: str, reason: str = "") -> None:
        """It did not, for a reason of which there are few, and in words."""


class EdgeTraces:
    """Told of each message; keeps nothing."""

    def sending(self, queue: str, headers: Mapping[str, str]) -> Step:
        """A producer's request is being carried out, which had these headers."""
        return UNTOLD

    def processing(self, queue: str, headers: Mapping[str, str], message: str, attempt: int) -> Step:
        """A consumer is called for a message."""
        return UNTOLD


UNTOLD: Final = Step()
NO_TRACES: Final = EdgeTraces()
