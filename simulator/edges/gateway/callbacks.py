"""Callbacks: a producer names a URL that is told when his message has ended, with what GET says of it then.

Who is to be told is on disk with the message before the producer hears 200, and in the outbox of the document history
soon after. The end may come before that: whichever is known last, the acceptance or the end, has it told. What is told
is there before the confirmation leaves its queue. `mqproto.simulator.edges.trigger.hooks` tells it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from mqproto.base.errors import UsageError
from mqproto.simulator.edges.gateway.trail import Looking, State, trail_of
from mqproto.simulator.edges.history.history import Hook
from mqproto.simulator.edges.trigger.hooks import AllowedHosts, Hooks

CALLBACK: Final = "MQ-Callback"
CALLBACK_TEXT: Final = "a URL that is told when the message has ended; the operator says which hosts may be"


class About(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a message whose end somebody waits for.

    given: its id as its producer knows it, without his name.
    """

    queue: str
    key: str
    given: str


class Arming(Looking, Protocol):
    """What is needed of `mqproto.simulator.edges.history.history.DocumentHistory`."""

    async def armed(self, identifier: str) -> Hook | None: ...


@dataclass(frozen=True, slots=True)
class Offer:
    """Which callbacks there are.

    hosts: what producers may name.
    url: told of messages whose producers name nobody; empty for none.
    """

    hosts: AllowedHosts = field(default_factory=AllowedHosts)
    url: str = ""

    def __bool__(self) -> bool:
        return bool(self.hosts.hosts or self.url)

    def check(self, url: str) -> None:
        """See that somebody may be told here.

        Raises:
            UsageError: nobody may.
        """
        if url != self.url:
            self.hosts.check(url)

    def chosen(self, asked: str, key: str, admin_queue: str) -> str:
        """Who is to be told of a message; empty for nobody.

        Args:
            asked: what its producer names; empty if he does not.

        Raises:
            UsageError: it cannot be.
        """
        if not asked:
            return self.url if key and not admin_queue else ""
        self.hosts.check(asked)
        if not key:
            raise UsageError(f"{CALLBACK} tells of a message by its id: give it one")
        if admin_queue:
            raise UsageError(
                f"{CALLBACK}: what an administration queue hears, the gateway does not: leave one out"
            )
        return asked


def name_of(message: str) -> str:
    """What the end of a message is called."""
    return f"{message}/ended"


def armed(message: str, about: About, url: str) -> Hook:
    """Who is to be told when a message has ended."""
    return Hook(name_of(message), url, msgspec.json.encode(about))


class Callbacks:
    """Have those told who wait for the ends of messages."""

    def __init__(self, history: Arming, hooks: Hooks) -> None:
        self._history = history
        self._hooks = hooks

    async def ended(self, message: str) -> None:
        """A message has ended, as the history knows. If that does not know yet that it was accepted, it is too early.

        Raises:
            HistoryError: nobody is sure to be told.
        """
        waiting = await self._history.armed(name_of(message))
        if waiting is None:
            return
        about = msgspec.json.decode(waiting.body, type=About)
        trail = await trail_of(self._history, about.queue, about.key)
        if trail is not None and trail.state is not State.UNDER_WAY:
            told = msgspec.structs.replace(trail, id=about.given)
            await self._hooks.tell(waiting._replace(body=msgspec.json.encode(told)))
