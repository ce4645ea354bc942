"""Lots of consecutive similar messages, which are checked only once.  [MS-MQQB] 3.1.7.11"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from mqproto.messages.destinations import Destination
from mqproto.messages.drafts import Draft
from mqproto.wire import UserMessage

OWN: Final = frozenset({"body", "label", "correlation_id", "extension"})
"""The fields of a draft in which the messages of one lot may differ."""
likeness: Final = attrgetter(*(field.name for field in fields(Draft) if field.name not in OWN))
"""Returns the values of all fields of a draft except those in OWN."""


class Lot(NamedTuple):
    """Consecutive messages that are similar and have the same destination."""

    destination: Destination
    drafts: list[Draft]
    signed: Sequence[UserMessage] = ()
    """The messages as they were when they were signed, before anything changed; empty if they are not signed."""

    @property
    def example(self) -> Draft:
        """The first draft, which has all the values that the drafts have in common."""
        return self.drafts[0]

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes of the lot's packets that come from the application."""
        own_bytes = _own_bytes(self.drafts)
        return (self.example.size_bytes - own_bytes[0]) * len(own_bytes) + sum(own_bytes)

    @property
    def longest(self) -> Draft:
        """The draft whose body and extension are the largest together."""
        own_bytes = _own_bytes(self.drafts)
        return self.drafts[own_bytes.index(max(own_bytes))]


def in_lots(messages: Iterable[tuple[Destination, Draft]]) -> Iterator[Lot]:
    """Yield the same messages as lots, in the same order."""
    for (destination, _), lot in groupby(messages, lambda message: (message[0], likeness(message[1]))):
        yield Lot(destination, [draft for _, draft in lot])


def _own_bytes(drafts: Iterable[Draft]) -> list[int]:
    """Return, for each draft, the size of the parts that differ between a lot's messages, except labels."""
    return [len(draft.body) + len(draft.extension) for draft in drafts]
