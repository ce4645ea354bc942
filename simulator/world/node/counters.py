"""Starts counters near their ends, so that a short run reaches values that a node otherwise reaches only after
years.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mqproto.manager.queuemanager import QueueManager
from mqproto.session import Session
from mqproto.simulator.world.scenarios.scenario import Counters
from mqproto.transfer.sequence import OutgoingSequence


def begin_late(core: QueueManager, counters: Counters) -> None:
    """Start a node's sessions and sequences as if they had already carried these numbers of messages.

    Both ends of a session must do so.
    """
    transports, sequences = core.inspect().transports, core.inspect().sequences
    if counters.session:
        transports.new_session = partial(_new_session, transports.new_session, counters.session)
    if counters.sequence:
        sequences.sequence_to = partial(_sequence_to, sequences.sequence_to, counters.sequence)


def _new_session(sound: Callable[..., Session], number: int, **options: Any) -> Session:
    session = sound(**options)
    data = session.data
    data.message_sent_count = data.recoverable_message_sent_count = number
    data.message_received_count = data.recoverable_message_received_count = number
    data.last_acked_recoverable_msg_seq_number = number
    return session


def _sequence_to(sound: Callable[..., OutgoingSequence], number: int, *arguments: Any) -> OutgoingSequence:
    """Begin a new sequence after a gap, as if all its messages up to a number had been withdrawn.

    The sequence's first message bridges the gap.
    """
    sequence = sound(*arguments)
    if sequence.next_number == 1 and not sequence.last_position:
        sequence._last = sequence.loaded_through = number
        places = sequence.cursors
        places.saved_through = places.sent_ceiling = places.stored_ceiling = number
        sequence.numbering.holes.add(1, number)
        sequence.window.read_through = sequence.window.last = number
    return sequence
