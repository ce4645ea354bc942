"""Captures that are not of one system: what both have by its identifiers has other contents in each.

So it is with two runs of a test, with a laboratory that was set up anew, with machines that were cloned. A message is
known by its source and its number. While no hop is behind it, its source alone has made it: if that gave one number to
two messages, it is at fault, but not with most of them. So captures are told apart by what is the same message in both
by its identifiers; if that is little, they are taken for one system.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from mqproto.base.words import counted
from mqproto.captures.decode.digest import digest_of
from mqproto.captures.packets import SeenPacket
from mqproto.wire import UserMessage

APART: Final = "not of one system with"
"""So begins what is said of a capture that is not."""
CLASH_COUNT: Final = 3
"""So many messages have to be others, and more than half of those that both have."""
LOOK_COUNT: Final = 1_024
"""How many messages of each capture are compared, the first ones."""

Contents = Mapping[Hashable, int]
"""Messages that left their sources, by their identifiers: digests of what is in them."""


def contents_of(packets: Iterable[SeenPacket]) -> dict[Hashable, int]:
    """The first messages of a capture that leave their sources, and that it has all of."""
    found: dict[Hashable, int] = {}
    for seen in packets:
        message = seen.packet
        if isinstance(message, UserMessage) and not message.user.hop_count and not seen.cut_bytes:
            key = (message.user.source_queue_manager, message.user.message_id)
            found.setdefault(key, digest_of(seen.data))
            if len(found) == LOOK_COUNT:
                break
    return found


class Systems:
    """Captures that are taken for one system; each new one is held against those before it."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, str]] = {}

    def add(self, name: str, contents: Contents) -> None:
        """One more capture of the system."""
        for key, digest in contents.items():
            self._known.setdefault(key, (digest, name))

    def clash(self, contents: Contents) -> tuple[str, str] | None:
        """The capture with which another one cannot be of one system, and why; None if it may be."""
        shared: Counter[str] = Counter()
        others: Counter[str] = Counter()
        for key, digest in contents.items():
            known = self._known.get(key)
            if known is not None:
                shared[known[1]] += 1
                others[known[1]] += known[0] != digest
        for name, count in others.most_common():
            if count >= CLASH_COUNT and 2 * count > shared[name]:
                both = counted(shared[name], "message")
                return name, f"of {both} that both have by their identifiers, {count:,} have other contents"
        return None
