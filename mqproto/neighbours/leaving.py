"""Chooses which messages leave on a neighbour's session, and in which order.  [MS-MQQB] 3.1.7.1"""

from __future__ import annotations

from typing import Final

from mqproto.base.moment import Moment
from mqproto.neighbours.connections import Neighbour
from mqproto.neighbours.hosts import Hosts
from mqproto.neighbours.refusals import Refusals
from mqproto.neighbours.sealing import Sealing
from mqproto.neighbours.trial import Trial
from mqproto.session import InFlight, Session
from mqproto.transfer.outgoing import OutgoingQueue
from mqproto.turn.desk import Desk
from mqproto.wire.glance import is_traced

TURN: Final = 32
"""How many messages one queue sends before the next queue to the same neighbour has its turn."""


class Leaving:
    """Takes messages from each of a neighbour's queues in turn, and sends them."""

    def __init__(self, desk: Desk, hosts: Hosts, refusals: Refusals) -> None:
        self._desk = desk
        self._hosts = hosts
        self._refusals = refusals
        self._sealing = Sealing(desk)
        self.traced: list[tuple[bytes, str]] = []
        """The traced messages that were sent, each with the host it was sent to, until they are reported."""

    def send(self, neighbour: Neighbour, session: Session, now: Moment) -> None:
        """Send as many messages as the window allows, taking the queues in turn."""
        if neighbour.trial is not None and neighbour.trial.one_at_a_time:
            self._send_one(neighbour, neighbour.trial, session, now)
            return
        while (room := session.room) and (queue := neighbour.next_queue()) is not None:
            if entries := self._take(queue, session, min(room, TURN), now):
                self._send(entries, neighbour, session, now)

    def _send_one(self, neighbour: Neighbour, trial: Trial, session: Session, now: Moment) -> None:
        """Send the next message if no other is on its way. Used while the neighbour refuses some message."""
        while session.room and not session.lost():
            passes_over = trial.lets_pass(neighbour.index) and trial.passes_over
            if passes_over and trial.untried:
                trial.pass_over_untried()
                continue
            entry = self._refusals.next(neighbour, now)
            if entry is None and (queue := neighbour.next_queue()) is not None:
                entries = trial.without_suspects(self._take(queue, session, 1, now))
                if passes_over:
                    self._refusals.pass_over(neighbour, entries)
                elif entries:
                    self._send(entries, neighbour, session, now)
                continue
            if entry is None and not neighbour.is_waiting:
                entry = self._refusals.next(neighbour, now, last=True)
            if entry is None:
                break
            self._send([entry], neighbour, session, now)

    def _take(self, queue: OutgoingQueue, session: Session, limit: int, now: Moment) -> list[InFlight]:
        """Take the next messages of a queue, and end those that have expired.  3.1.7.1"""
        entries, over = queue.take(limit, session.room_bytes, now, self._desk.writes)
        self._desk.endings += over
        return entries

    def _send(self, entries: list[InFlight], neighbour: Neighbour, session: Session, now: Moment) -> None:
        entries = self._sealing.sealed(entries, neighbour, now)
        if not entries:
            return
        session.send(entries, now)
        self._hosts.of(session, now).sent += len(entries)
        self._desk.waypoints.sent(entries, session)
        host = session.data.remote_address
        self.traced += [(entry.packet, host) for entry in entries if is_traced(entry.message.packet)]
