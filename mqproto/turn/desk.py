"""The context that all parts of one queue manager share."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqproto.base.configuration import Settings
from mqproto.base.timers import Timers
from mqproto.turn.effects import Note
from mqproto.turn.endings import Ending
from mqproto.turn.guard import NO_KEYS, Guard
from mqproto.turn.pending import PendingWrites
from mqproto.turn.waypoints import OFF, Follow, WaypointNotes, Waypoints, nobody
from mqproto.wire.guid import Guid


@dataclass(slots=True)
class Desk:
    """The context of one queue manager. `desk_of` makes it.

    identity: QueueManager.Identifier.
    guard: the interface to its keys.
    notes: the notes for the next batch.
    endings: messages that have ended, but whose consequences have yet to be handled.
    """

    identity: Guid
    settings: Settings
    timers: Timers
    writes: PendingWrites
    waypoints: Waypoints = OFF
    guard: Guard = NO_KEYS
    notes: list[Note] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)


def desk_of(identity: Guid, settings: Settings, guard: Guard = NO_KEYS, follow: Follow = nobody) -> Desk:
    """Return a desk with nothing on it yet."""
    timers, notes = Timers(), list[Note]()
    waypoints: Waypoints = OFF
    if settings.waypoints or follow is not nobody:
        waypoints = WaypointNotes(identity, notes, follow, everything=settings.waypoints)
    guard.attach(timers, notes)
    return Desk(identity, settings, timers, PendingWrites(timers, waypoints), waypoints, guard, notes)
