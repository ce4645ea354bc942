"""Assembles the parts of one queue manager; tests and worlds can inspect all of them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.manager.arriving.arrivals import Arrivals
from mqproto.manager.confirmations import AcknowledgedMessages, Confirmations
from mqproto.manager.deadletters import DeadLetters
from mqproto.manager.expiration import Expiration
from mqproto.manager.identifiers import Histories, MessageIdHistory
from mqproto.manager.localqueues import LocalQueues
from mqproto.manager.outbound import Outbound
from mqproto.manager.outcomes import Outcomes, Tracing
from mqproto.manager.ownsequences import OwnSequences
from mqproto.manager.purges import Damage, Purges
from mqproto.manager.sending import Sending
from mqproto.neighbours.blocks import Blocks
from mqproto.neighbours.calling import Neighbours
from mqproto.neighbours.met import Met
from mqproto.neighbours.transports import SessionTransports
from mqproto.queues.localqueue import QueueDeclaration, SystemQueue
from mqproto.routing import Routes
from mqproto.transfer.doubts import Doubts
from mqproto.transfer.spellings import IncomingSequences
from mqproto.turn.desk import Desk, desk_of
from mqproto.turn.effects import IdentifierRow, StoredState
from mqproto.turn.guard import Guard
from mqproto.turn.pending import GivenNumbers
from mqproto.turn.posted import PostedMessages
from mqproto.turn.waypoints import Follow
from mqproto.wire.guid import Guid


class Parts(NamedTuple):
    """The parts that `QueueManager.inspect` returns.

    Reading them is harmless; changing one breaks the queue manager. Simulated worlds do both: they
    check invariants, and play queue managers that misbehave. For that purpose, some parts have seams:
    attributes that hold a function, so that a test can replace it.

    transports: has the seams `new_session`, `receive` and `acknowledge`.
    outbound: has the seam `acknowledge`.
    sequences: has the seam `sequence_to`.
    arrivals: has the seam `forward`.
    """

    desk: Desk
    transports: SessionTransports
    neighbours: Neighbours
    outbound: Outbound
    sequences: OwnSequences
    queues: LocalQueues
    incoming: IncomingSequences
    histories: Histories
    arrivals: Arrivals
    outcomes: Outcomes
    sending: Sending
    expiration: Expiration
    doubts: Doubts
    blocks: Blocks
    met: Met
    routes: Routes
    tracing: Tracing
    confirmations: Confirmations
    acknowledged: AcknowledgedMessages
    damage: Damage
    purges: Purges
    dead_letters: DeadLetters
    posted: PostedMessages


def build(
    identity: Guid,
    queues: Iterable[QueueDeclaration],
    routes: Routes,
    settings: Settings,
    state: StoredState,
    now: Moment,
    guard: Guard,
    follow: Follow,
) -> Parts:
    """Assemble the parts of a `QueueManager`, whose docstring explains the arguments."""
    desk = desk_of(identity, settings, guard, follow)
    numbers = GivenNumbers(desk.writes, state)
    incoming = IncomingSequences()
    met = Met(desk, routes, state, now, numbers.next_queue)
    transports = SessionTransports(desk, routes, met)
    neighbours = Neighbours(desk, transports, met)
    outbound = Outbound(desk, routes, neighbours, numbers, now)
    sequences = OwnSequences(desk, routes, neighbours, outbound, state, now)
    local = LocalQueues(desk, queues, numbers.next_queue, state)
    routes = replace(routes, publics=ChainMap(local.publics, dict(routes.publics)))
    blocks = Blocks(state, desk.writes, numbers.next_queue)
    histories = _histories(desk, {identity, *routes.peers}, transports, state, now)
    doubts = Doubts(desk, local.named(SystemQueue.DEADXACT), numbers.next_queue, state)
    posted = PostedMessages(desk, state, now, numbers.next_message_id)
    outcomes = Outcomes(desk, incoming, routes, outbound, local, doubts, posted)
    tracing = Tracing(outcomes)
    expiration = Expiration(desk, outbound, neighbours, local, state)
    acknowledged = AcknowledgedMessages(desk, outbound, sequences, local, doubts, state)
    confirmations = Confirmations(desk, outbound, sequences, incoming, acknowledged, posted)
    arrivals = Arrivals(
        desk, incoming, outbound, local, histories, confirmations, expiration, tracing, routes
    )
    arrivals.in_sequence.restore(state, now)
    sending = Sending(desk, outbound, sequences, local, expiration, posted)
    return Parts(
        desk=desk,
        transports=transports,
        neighbours=neighbours,
        outbound=outbound,
        sequences=sequences,
        queues=local,
        incoming=incoming,
        histories=histories,
        arrivals=arrivals,
        outcomes=outcomes,
        sending=sending,
        expiration=expiration,
        doubts=doubts,
        blocks=blocks,
        met=met,
        routes=routes,
        tracing=tracing,
        confirmations=confirmations,
        acknowledged=acknowledged,
        damage=Damage(desk, outbound, local, outcomes, state),
        purges=Purges(desk),
        dead_letters=DeadLetters(desk, routes, local, sending),
        posted=posted,
    )


def _histories(
    desk: Desk, known: set[Guid], transports: SessionTransports, state: StoredState, now: Moment
) -> Histories:
    """Return the histories of messages that came: one for known queue managers, and one for strangers."""
    rows: dict[bool, list[IdentifierRow]] = {True: [], False: []}
    for row in state.identifiers:
        rows[row.source in known].append(row)
    strangers = partial(transports.connected, proven=False)
    settings, timers = desk.settings, desk.timers
    most, remembered = settings.remove_duplicate_size, settings.strangers_remembered
    return Histories(
        MessageIdHistory(settings, timers, rows[True], now, transports.connected, most),
        MessageIdHistory(settings, timers, rows[False], now, strangers, remembered, unstored=known),
    )
