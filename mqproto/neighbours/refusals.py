"""Carries out the decisions of trial.py: holds suspects back, sends them alone, and sets them aside.

[MS-MQQB] 3.1.5.8.2, 3.1.7.1.3
"""

from __future__ import annotations

from collections.abc import Iterable

from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.neighbours.connections import Neighbour
from mqproto.neighbours.trial import Suspect, Trial
from mqproto.session import InFlight, Session
from mqproto.transfer.outgoing import queue_of
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.desk import Desk
from mqproto.turn.effects import Note
from mqproto.turn.endings import Ending, Place
from mqproto.wire import MessageClass, decode_message
from mqproto.wire.glance import head_of
from mqproto.wire.guid import guid_text


class Refusals:
    """Runs the trials of all neighbours."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def ended(self, neighbour: Neighbour, session: Session) -> list[InFlight]:
        """Handle the end of a neighbour's session. Return the messages that must be sent again first.

        Messages that the neighbour had acknowledged were not refused, even if it had not saved them.
        """
        lost, unacknowledged = session.lost(), session.unacknowledged()
        if not lost:
            return lost
        taken = lost[: len(lost) - len(unacknowledged)]
        if neighbour.trial is None:
            neighbour.trial = Trial()
        neighbour.trial.were_out(lost)
        neighbour.trial.were_taken(taken)
        if not unacknowledged:
            return lost
        back, held = neighbour.trial.ended(neighbour.index, unacknowledged, by_us=session.has_refused)
        for suspect in held:
            self._hold_back(neighbour, suspect)
            if suspect.is_found:
                self._set_aside(neighbour, suspect)
        if back is not unacknowledged:
            back = [entry for entry in back if entry in lost or queue_of(entry).awaits(entry.position)]
            for entry in back:
                queue_of(entry).release(entry.position)
        return [*taken, *back]

    def answered(self, neighbour: Neighbour, completed: list[InFlight]) -> None:
        """Record that a neighbour has accepted these messages."""
        trial = neighbour.trial
        if trial is None or not completed:
            return
        trial.answered(neighbour.index, completed)
        if not trial.one_at_a_time and not neighbour.has_messages:
            neighbour.trial = None

    def next(self, neighbour: Neighbour, now: Moment, *, last: bool = False) -> InFlight | None:
        """Return the held-back message to send alone now; None if none may be sent.

        last: whether no other message can go now. If so, all suspects are considered. But a suspect that no other
            message has overtaken yet still waits if other messages can go later.
        """
        trial = neighbour.trial
        assert trial is not None
        for suspect in list(trial.suspects) if last else trial.candidates(neighbour.index):
            entry = suspect.entry
            queue = queue_of(entry)
            if not queue.awaits(entry.position):  # It was deleted, or its destination has it.
                trial.drop(suspect)
            elif queue.is_over(entry.message, now):
                trial.drop(suspect)
                queue.release(entry.position)
                queue.returned([entry])
                neighbour.wake(queue)
            elif not queue.on_hold and not (last and self._is_waited_for(neighbour, trial, suspect)):
                entry = queue.again(entry)
                queue.release(entry.position)
                return entry
        return None

    def _is_waited_for(self, neighbour: Neighbour, trial: Trial, suspect: Suspect) -> bool:
        return not suspect.overtaken[neighbour.index] and neighbour.count > len(trial.suspects)

    def pass_over(self, neighbour: Neighbour, entries: list[InFlight]) -> None:
        """Hold unsent messages back, in addition to the suspects."""
        assert neighbour.trial is not None
        neighbour.trial.pass_over(entries)
        for entry in entries:
            queue_of(entry).withhold(entry, self._desk.writes)
            queue_of(entry).passed_over(entry)

    def _hold_back(self, neighbour: Neighbour, suspect: Suspect) -> None:
        entry = suspect.entry
        queue_of(entry).withhold(entry, self._desk.writes)
        if suspect.refused.total() == 1:
            self._desk.notes.append(Note("message-suspected", self._facts(neighbour, entry)))

    def _set_aside(self, neighbour: Neighbour, suspect: Suspect) -> None:
        """End a refused message here, although the neighbour may have it: only the neighbour could know that.

        Our own transactional message is in doubt, because a copy may have gone another way. The sender of another queue
        manager's transactional message gets a FinalAck with the class of a message that ended on its way. For that
        class alone, a sender believes queue managers other than the destination, until the destination says more.
        """
        entry = suspect.entry
        queue = queue_of(entry)
        try:
            decode_message(entry.packet)
        except WireFormatError:
            # Nobody can be told of it, and it cannot be a dead letter: it stays in its queue, on disk, out of the way.
            self._desk.notes.append(Note("message-unreadable", self._facts(neighbour, entry)))
            return
        queue.release(entry.position)
        queue.remove(entry.message, self._desk.writes)
        self._desk.notes.append(Note("message-set-aside", self._facts(neighbour, entry)))
        is_copy = queue.is_copy(entry.packet)
        self._desk.endings.append(
            Ending(
                entry.packet,
                MessageClass.NACK_HOP_COUNT_EXCEEDED if is_copy else MessageClass.NACK_DELETED,
                Place.ON_THE_WAY,
                is_set_aside=True,
                in_doubt=isinstance(queue, OutgoingSequence),
                is_copy=is_copy,
            )
        )

    def _facts(self, neighbour: Neighbour, entry: InFlight) -> dict[str, str | int]:
        head = head_of(entry.packet)
        return {
            "source": guid_text(head.source_queue_manager),
            "message_id": head.message_id,
            "queue": queue_of(entry).name,
            "peer": str(neighbour.hop),
        }


def suspected(neighbour: Neighbour | None, lanes: Iterable[object]) -> list[str]:
    r"""Return the messages in these queues that a neighbour is suspected of refusing, as `GUID\ordinal`."""
    trial = neighbour.trial if neighbour is not None else None
    heads = [
        head_of(suspect.entry.packet)
        for suspect in (trial.suspects if trial is not None else ())
        if suspect.entry.origin in lanes and queue_of(suspect.entry).awaits(suspect.entry.position)
    ]
    return [f"{guid_text(head.source_queue_manager)}\\{head.message_id}" for head in heads]
