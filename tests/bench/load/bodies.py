"""What a producer sends, and by what its messages are known when they come: all alike, or of mixed sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from mqproto.messages.drafts import Draft
from simulator.demo.workload import Workload, as_batches
from simulator.faults.proof import digest_of

REQUEST_MESSAGES: Final = 200
REQUEST_BYTES: Final = 2**20
"""What the producer hands over at once, at most; at least one message."""
RECEIVE_MESSAGES: Final = 500
RECEIVE_BYTES: Final = 4 * 2**20
"""What the consumer takes in one transaction, at most."""
RECEIVE_MIXED_MESSAGES: Final = 64
"""The same if nobody knows how large the next ones are."""
UNALTERED: Final = b""
ALTERED: Final = b"altered"
"""They take the place of digests where all bodies are the same."""


class Message(Protocol):
    """What was sent, or what came."""

    @property
    def label(self) -> str: ...

    @property
    def body(self) -> bytes: ...


class Bodies(Protocol):
    """The messages of one producer.

    receive_messages: how many of them a consumer takes in one transaction, at most.
    """

    receive_messages: int

    def drafts(self, count: int) -> list[Draft]:
        """The next `count`."""

    def requests(self, count: int) -> Iterator[list[Draft]]:
        """The next `count`, in the groups that are handed over at once."""

    def digests(self, messages: Sequence[Message]) -> list[bytes]:
        """By what each is known: the same for what was sent and for what came, unless it was altered."""


class Alike:
    """Messages that have one body.

    Args:
        privacy_level, signer: of each draft, if they are encrypted or signed.
    """

    def __init__(self, body: bytes, *, privacy_level: int = 0, signer: str = "") -> None:
        self._draft = Draft(
            body=body, label="bench", transactional=True, privacy_level=privacy_level, signer=signer
        )
        self._request_messages = max(1, min(REQUEST_MESSAGES, REQUEST_BYTES // max(1, len(body))))
        self.receive_messages = max(1, min(RECEIVE_MESSAGES, RECEIVE_BYTES // max(1, len(body))))

    def drafts(self, count: int) -> list[Draft]:
        """The same one `count` times."""
        return [self._draft] * count

    def requests(self, count: int) -> Iterator[list[Draft]]:
        """Groups of one size, but for the last."""
        for first in range(0, count, self._request_messages):
            yield self.drafts(min(self._request_messages, count - first))

    def digests(self, messages: Sequence[Message]) -> list[bytes]:
        """Each body is compared, which is faster than a digest."""
        body = self._draft.body
        return [UNALTERED if message.body == body else ALTERED for message in messages]


class Mixed:
    """The messages of a workload, one after the other; their number is what it has in all."""

    receive_messages = RECEIVE_MIXED_MESSAGES

    def __init__(self, workload: Workload) -> None:
        self._items = workload.items()

    def drafts(self, count: int) -> list[Draft]:
        """Made when they are asked for: all of them at once would fill the memory."""
        return [
            Draft(body=item.body, label=item.label, transactional=True) for item in islice(self._items, count)
        ]

    def requests(self, count: int) -> Iterator[list[Draft]]:
        """Groups of up to 200 messages and 4 MiB."""
        return as_batches(draft for _ in range(count) for draft in self.drafts(1))

    def digests(self, messages: Sequence[Message]) -> list[bytes]:
        """Of label and body: several bodies are empty."""
        return [digest_of(message.label, message.body) for message in messages]


def bodies_of(messages: bytes | Workload | Alike) -> Bodies:
    """Of one body, or of a workload."""
    if isinstance(messages, Alike):
        return messages
    return Mixed(messages) if isinstance(messages, Workload) else Alike(messages)
