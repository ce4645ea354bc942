"""Recognizes captures of different systems, whose messages share identifiers but differ in content.

Examples are two runs of a test, a laboratory that was set up again, and cloned machines. A message is identified by its
source and its number. On its first hop, only its source has handled it. A faulty source may give the same number to two
messages, but will not do so for most of its messages. So two captures are compared by the messages whose identifiers
occur in both. If there are few such messages, the captures count as one system.
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
"""The start of the text about a capture of another system."""
CLASH_COUNT: Final = 3
"""Two captures clash if at least this many, and more than half, of their common messages differ."""
LOOK_COUNT: Final = 1_024
"""How many messages at the beginning of each capture are compared."""

Contents = Mapping[Hashable, int]
"""Digests of contents, keyed by message identifier, for messages that are just leaving their sources."""


def contents_of(packets: Iterable[SeenPacket]) -> dict[Hashable, int]:
    """Return digests of the first whole messages in a capture that are just leaving their sources."""
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
    """Captures that count as one system; each new one is compared with those before it."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, str]] = {}

    def add(self, name: str, contents: Contents) -> None:
        """Add a capture of the system."""
        for key, digest in contents.items():
            self._known.setdefault(key, (digest, name))

    def clash(self, contents: Contents) -> tuple[str, str] | None:
        """Return a capture that cannot be from the same system as these contents, and the reason.

        Return None if there is no such capture.
        """
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
