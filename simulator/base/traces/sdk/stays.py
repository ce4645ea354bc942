"""A node's part in a trace: turns the node's notes about traced messages into spans.

A span begins at a waypoint, and has one event for each waypoint. It ends when the message is at rest, either on disk or
in a queue. So a message that waits for days is visible at once, and the gap between two spans is its waiting time:

    accepted  stored  sent  session-acknowledged  order-acknowledged    one span, if the next hop is there
    accepted  stored ║ sent ...                                         two, if it was not
    arrived  forwarded  stored  sent  session-acknowledged
    arrived  queued  stored ║ delivered  committed
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from opentelemetry.trace import Span, SpanKind, StatusCode

from mqproto.base.foreign import shown
from mqproto.simulator.base.traces.sdk.tracer import Tracer
from mqproto.turn.effects import Note
from mqproto.turn.waypoints import DROPS, Waypoint
from mqproto.wire.guid import Guid, guid_text

OPEN_LIMIT: Final = 1_024
"""The maximum number of open spans: those of messages that are moving, or that a consumer has.

When there are more, the oldest one ends.
"""
NAME_LIMIT: Final = 200
_UNDER_WAY: Final = frozenset({Waypoint.SENT, Waypoint.RESENT, Waypoint.DELIVERED})
_AS_BEFORE: Final = DROPS | {
    Waypoint.ARRIVED,
    Waypoint.STORED,
    Waypoint.DEAD_LETTERED,
    Waypoint.JOURNALED,
    Waypoint.NOT_KEPT,
    Waypoint.RECALLED,
}
"""Waypoints that leave a message where it was, or that are about another copy of it."""
_BAD: Final = frozenset(
    {
        Waypoint.REFUSED,
        Waypoint.REJECTED,
        Waypoint.EXPIRED,
        Waypoint.PURGED,
        Waypoint.DEAD_LETTERED,
        Waypoint.NOT_KEPT,
    }
)
_IN_ITS_QUEUE: Final = frozenset(
    {
        Waypoint.HELD,
        Waypoint.QUEUED,
        Waypoint.DELIVERED,
        Waypoint.COMMITTED,
        Waypoint.ROLLED_BACK,
        Waypoint.REJECTED,
        Waypoint.EXPIRED,
        Waypoint.PURGED,
    }
)
"""Waypoints whose notes use the name that the queue has on its own host.

Notes of `accepted` have the name that all nodes use.
"""
_WAYPOINTS: Final = frozenset(Waypoint)


@dataclass(slots=True)
class _Stay:
    """A message that is moving.

    began_with: the waypoint with which the span began.
    is_under_way: whether a neighbour or a consumer has yet to answer.
    is_numbered: whether it has been sent with a place in a sequence.
    """

    span: Span
    began_with: str
    queue: str = ""
    is_under_way: bool = False
    is_numbered: bool = False


class Stays:
    """Makes spans from notes.

    Args:
        node, identity: the queue manager's name and GUID.
        called: returns the name that people use for the queue in a note.
        now_ns: returns the current time, UTC.
    """

    def __init__(
        self,
        tracer: Tracer,
        node: str,
        identity: Guid,
        called: Callable[[str], str],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._tracer = tracer
        self._node = node
        self._own = guid_text(identity) + "\\"
        self._called = called
        self._now_ns = now_ns
        self._open: dict[str, _Stay] = {}

    def take(self, note: Note) -> None:
        """Take a note. If it is about a step of a traced message, add the step to the message's span."""
        if note.trace is None or note.name not in _WAYPOINTS:
            return
        waypoint, name, now_ns = Waypoint(note.name), str(note.facts["message"]), self._now_ns()
        stay = self._open.get(name)
        if stay is None:
            span = self._tracer.begin(
                waypoint, SpanKind.INTERNAL, note.trace, {"messaging.message.id": name}, at_ns=now_ns
            )
            if span is None:
                return
            stay = self._open[name] = _Stay(span, waypoint)
            if len(self._open) > OPEN_LIMIT:
                self._end(next(iter(self._open)), now_ns)
        facts = {fact: value for fact, value in note.facts.items() if fact != "message"}
        if queue := str(facts.get("queue", "")):
            facts["queue"] = called = shown(self._called(queue), NAME_LIMIT)
            if waypoint is Waypoint.ACCEPTED:
                stay.queue = called
            elif waypoint in _IN_ITS_QUEUE:
                stay.queue = shown(f"{self._node}\\{queue}", NAME_LIMIT)
        stay.span.add_event(waypoint, facts, now_ns)
        if waypoint in _BAD:
            why = facts.get("reason") or facts.get("class")
            stay.span.set_status(StatusCode.ERROR, f"{waypoint}: {why}" if why else waypoint)
        self._move(stay, waypoint, facts, is_own=name.startswith(self._own))

    def _move(self, stay: _Stay, waypoint: Waypoint, facts: dict[str, str | int], *, is_own: bool) -> None:
        if waypoint in _AS_BEFORE:
            return
        if waypoint is Waypoint.SESSION_ACKNOWLEDGED:
            # For our own numbered messages the destination acknowledges the arrival too; wait for that if it is due.
            stay.is_under_way = stay.is_under_way and is_own and stay.is_numbered
            return
        stay.is_under_way = waypoint in _UNDER_WAY
        stay.is_numbered = stay.is_numbered or (waypoint in _UNDER_WAY and "number" in facts)

    def settle(self) -> None:
        """End the spans of messages that are at rest. This is called once all notes of a turn have been taken."""
        if not self._open:
            return
        now_ns = self._now_ns()
        for name in [name for name, stay in self._open.items() if not stay.is_under_way]:
            self._end(name, now_ns)

    def close(self) -> None:
        """End all spans, because the node stops."""
        now_ns = self._now_ns()
        for name in list(self._open):
            self._end(name, now_ns)

    def _end(self, name: str, now_ns: int) -> None:
        stay = self._open.pop(name)
        if stay.queue:
            stay.span.update_name(f"{stay.began_with} {stay.queue}")
            stay.span.set_attribute("messaging.destination.name", stay.queue)
        stay.span.end(now_ns)
