"""Runs a world: a storm, then a calm, then the last checks.

result = simulate(draw(7))
assert result.breach is None
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from mqproto.captures.net.tcp import MAX_SEGMENT_BYTES
from mqproto.manager.whereabouts import Spot
from mqproto.simulator.world.faults.table import EVENTS
from mqproto.simulator.world.network.glimpse import identity_of
from mqproto.simulator.world.network.trace import WorldTrace
from mqproto.simulator.world.node.files import DiedError
from mqproto.simulator.world.oracle import atrest, intime
from mqproto.simulator.world.oracle.ledger import Ledger
from mqproto.simulator.world.oracle.recounts import sums_are_true
from mqproto.simulator.world.oracle.watched import WatchedNode
from mqproto.simulator.world.scenarios.scenario import Burst, Fault, Scenario, guid_of
from mqproto.simulator.world.scenarios.traffic import KINDS, Kind, Message, body_of, to_a_stranger
from mqproto.simulator.world.world import OWN_ERROR, Breach, BreachFoundError, World
from mqproto.turn.effects import QueueKind
from mqproto.wire import guid_text

UNTIMELY: Final = frozenset({"jump clock", "slow disk", "full disk"})
"""The faults after which expired messages may leave late."""
TIMES: Final = frozenset({"time_to_reach_queue_s", "time_to_be_received_s"})
"""The fields of a draft that make a message expire."""
CALM_MS: Final = 600_000
"""The maximum duration of the calm, in milliseconds. It ends early once nobody owes anything.

99 in 100 honest worlds need one minute, and the slowest in a thousand needs four. Nodes have to detect dead sessions,
which takes a minute for each, and then resend lost messages at the longest timeout, which is also one minute.
"""
CALM_STEP_MS: Final = 2_000
ROOMY_AFTER_MS: Final = 5_000
"""The time, in milliseconds from the start of the calm, after which full nodes have restarted with more room."""
FOLLOWING: Final = 200
"""The maximum number of messages that are sent after a refused one, to find out which message is refused."""
FOLLOWING_IN_VAIN: Final = 20
"""The number of messages sent after a refused one before checking whether any of them can pass."""
FIRST_FOLLOWING: Final = 10_000
FIRST_BEHIND: Final = 9_000
"""The number of the first burst that is sent to follow messages held in vain."""
FIRST_CALLING: Final = 8_000
"""The lowest number that is given to a burst with which a node calls again.

The numbers of these bursts count down to this one.
"""
FOLLOWING_OF_ONE: Final = 1_000
"""How many burst numbers are reserved for each node."""
TO_BE_SENT: Final = frozenset({Spot.UNSENT, Spot.IN_FLIGHT})
FOLLOWING_EVERY_MS: Final = 2_000
HEADROOM_BYTES: Final = 1_000
"""The number of bytes by which one message must be larger than another so that its packet is larger, too, whatever the
kinds of the two messages.
"""


@dataclass(frozen=True, slots=True)
class WorldResult:
    """The result of running a world."""

    scenario: Scenario
    breach: Breach | None
    tally: Counter[str] = field(compare=False)
    maxima: dict[str, int] = field(compare=False)
    """The maximum values of some figures, such as the longest outage, in milliseconds."""
    trace: WorldTrace = field(compare=False)
    messages: tuple[Message, ...] = field(default=(), compare=False)
    """All accepted messages of applications, with the outcome of each."""
    end_ms: int = 0


def run(world: World) -> WorldResult:
    """Run the storm, the calm and the checks."""
    try:
        _storm(world)
        _calm(world)
        for machine in world.machines.values():
            machine.answer_at_rest()
        for node in world.nodes.values():
            world.oracle.holds(sums_are_true, node)
        for invariant in atrest.AT_REST:
            world.oracle.check(invariant.__name__, invariant(world.ledger))
    except BreachFoundError:
        pass
    except (Exception, DiedError) as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        world.breach = Breach(OWN_ERROR, world.events.now_ms, f"{type(error).__name__} in {where}: {error}")
    for machine in world.machines.values():
        world.ledger.look(machine.node)
        machine.files.leave()
    return WorldResult(
        world.scenario,
        world.breach,
        world.ledger.tally,
        world.maxima,
        world.trace,
        tuple(world.ledger.accepted),
        world.events.now_ms,
    )


def _storm(world: World) -> None:
    events, scenario = world.events, world.scenario
    for machine in world.machines.values():
        machine.start()
    for number, burst in enumerate(scenario.bursts):
        events.at(burst.at_ms, world.machines[burst.source].people.submit, burst, number)
    for fault in scenario.faults:
        events.at(fault.at_ms, strike, world, fault)
    timely = any(TIMES & KINDS[burst.kind].draft.keys() for burst in scenario.bursts)
    if timely and not UNTIMELY & {fault.kind for fault in scenario.faults}:
        for at_ms in range(0, scenario.storm_ms, 1_000):
            events.at(at_ms, _look_for_what_is_over, world)
    events.run_until(scenario.storm_ms)


def _look_for_what_is_over(world: World) -> None:
    for node in world.nodes.values():
        world.oracle.holds(intime.what_is_over_leaves_in_time, world.ledger, node)


def strike(world: World, fault: Fault) -> None:
    """Make something go wrong."""
    world.trace.add(world.events.now_ms, fault.kind, fault)
    if EVENTS[fault.kind](world, fault):
        world.ledger.tally[f"fault {fault.kind}"] += 1


def _calm(world: World) -> None:
    """Make everything work again. Continue until nobody owes anything, or until this takes too long."""
    world.is_calm = True
    now_ms = world.events.now_ms
    world.trace.add(now_ms, "calm")
    for line in world.lines.values():
        line.mend()
    if world.keyring is not None:
        world.keyring.mend()
        world.tell_of_keys(*world.machines)
    for machine in world.machines.values():
        machine.mend()
    sent_ms = _send_once_more(world)
    _send_behind_what_is_refused(world)
    nodes = list(world.nodes.values())
    return_ms = now_ms + max(intime.return_limit_ms(node.settings) for node in nodes)
    retained, step_ms = _come_to_rest(world, now_ms, sent_ms, atrest.nothing_is_retained)
    world.maximum("calm until nothing is owed", world.events.now_ms - now_ms)
    world.oracle.check("nothing_is_retained", retained)
    if held := atrest.held_in_vain(world.ledger, nodes):
        _send_behind_what_is_held(world, held)
        sent_ms = world.events.now_ms
        left, step_ms = _come_to_rest(world, now_ms, sent_ms, atrest.what_is_held_goes_with_the_next)
        world.oracle.check("what_is_held_goes_with_the_next", left)
    while (astray := intime.the_first_way_is_taken_again(nodes)) is not None:
        if world.events.now_ms > return_ms:
            world.oracle.check("the_first_way_is_taken_again", astray)
        _pass_the_time(world, step_ms, now_ms)


def _come_to_rest(
    world: World,
    calm_ms: int,
    sent_ms: int,
    invariant: Callable[[Ledger, Sequence[WatchedNode]], str | None],
) -> tuple[str | None, int]:
    """Let time pass until an invariant holds and everything has been sent, or the limit is reached.

    Returns:
        The breach that is left at the end, if any, and the length of the next step.
    """
    events, nodes = world.events, list(world.nodes.values())
    end_ms, step_ms = events.now_ms + CALM_MS, CALM_STEP_MS
    reason: str | None = ""
    while (reason is not None or events.now_ms <= sent_ms) and events.now_ms < end_ms:
        _pass_the_time(world, step_ms, calm_ms)
        reason = invariant(world.ledger, nodes)
        step_ms = min(2 * step_ms, 60_000)
    return reason, step_ms


def _pass_the_time(world: World, step_ms: int, calm_ms: int) -> None:
    world.events.run_until(world.events.now_ms + step_ms)
    world.oracle.holds(intime.what_was_lost_is_sent_again, world.nodes.values(), calm_ms)
    world.oracle.holds(intime.unused_sessions_are_closed, world.nodes.values(), calm_ms)


def _send_once_more(world: World) -> int:
    """Send one more message in each sequence that may have lost some of its messages.

    This is needed after an operator deleted messages of the source, or after a store was restored to an earlier state.
    If a message was lost and then deleted, the destination holds later messages until the new one arrives. So the new
    message must not be refused for lack of room. Nodes that were full have more room by then.

    A node that nobody can call sends a message in any case. It gets answers only by calling others, and its clock may
    say that it is too late to call for the answers to its earlier messages.

    Returns:
        The time at which the messages are sent; 0 if there are none.
    """
    at_ms = world.events.now_ms + ROOMY_AFTER_MS
    streams = {
        (burst.source, target, _plain(KINDS[burst.kind]))
        for burst in world.scenario.bursts
        for target in burst.targets
        if KINDS[burst.kind].transactional
        and (
            world.nodes[burst.source].has_purged
            or world.ledger.has_gone_back
            or burst.source == world.scenario.uncalled
        )
    }
    for number, (source, target, kind) in enumerate(sorted(streams), len(world.scenario.bursts)):
        burst = Burst(at_ms=at_ms, source=source, target=target, kind=kind)
        world.events.at(at_ms, world.machines[source].people.submit, burst, number)
    return at_ms if streams else 0


def _send_behind_what_is_held(world: World, held: Iterable[Message]) -> None:
    """Send one more message in each sequence with messages that are held in vain.

    This is done once everything else is at rest, because messages sent earlier would hide a loss at the end of a
    sequence.
    """
    world.ledger.tally["followed on what was held in vain"] += 1
    streams = {(message.burst.source, message.burst.target, _plain(message.kind)) for message in held}
    now_ms = world.events.now_ms
    for number, (source, target, kind) in enumerate(sorted(streams), FIRST_BEHIND):
        burst = Burst(at_ms=now_ms, source=source, target=target, kind=kind)
        world.events.at(now_ms, world.machines[source].people.submit, burst, number)


def _send_behind_what_is_refused(world: World) -> None:
    """During the calm, keep sending messages after a refused one.

    A refusal may mean that a node is full: only another message that passes shows that it is not.
    """
    for fault in world.scenario.faults:
        if fault.kind == "picky":
            # By then, what its application could not send in the storm has been accepted, too.
            world.events.at(world.events.now_ms + ROOMY_AFTER_MS, _follow, world, fault, FOLLOWING)
            if world.scenario.uncalled:
                world.events.at(world.events.now_ms + ROOMY_AFTER_MS, _call_again, world, FOLLOWING)


def _call_again(world: World, left: int) -> None:
    """Make a node that nobody can call keep sending while others have messages for it.

    This is needed because refusals end the node's sessions.
    """
    name, now_ms = world.scenario.uncalled, world.events.now_ms
    for other in world.nodes.values():
        outbound = other.core.inspect().outbound if other.core is not None and other.name != name else ()
        if any(queue.count and queue.name.startswith(guid_text(guid_of(name))) for queue in outbound):
            kind = to_a_stranger("recoverable")
            burst = Burst(at_ms=now_ms, source=name, target=other.name, kind=kind)
            world.machines[name].people.submit(burst, FIRST_CALLING + left)
    if left:
        world.events.at(now_ms + FOLLOWING_EVERY_MS, _call_again, world, left - 1)


def _follow(world: World, fault: Fault, left: int) -> None:
    """Send the next message after a refused one, from the node that has the refused one.

    A message from another node might take a route that avoids the node that refuses.

    If the refused message is in a sequence, and all following messages are in other sequences, they wait for it. No
    message can then pass and show which one is refused, so an operator eventually makes the node stop refusing.
    """
    number = fault.value
    refused = world.scenario.bursts[number]
    body = body_of(refused, number, 0)
    waiting = [
        message for message in world.ledger.accepted if message.body == body and not _has_ended(message)
    ]
    if not waiting:
        # A copy may be left where nothing else passes, because its source has found another route.
        world.nodes[fault.where].refuses.discard(body)
    if not (waiting and left):
        return
    if left < FOLLOWING - FOLLOWING_IN_VAIN and not any(_is_followed(world, message) for message in waiting):
        world.nodes[fault.where].refuses.discard(body)
    kind, now_ms = KINDS[refused.kind], world.events.now_ms
    for place, source in enumerate(_keepers(world, waiting) or [refused.source]):
        burst = Burst(
            at_ms=now_ms,
            source=source,
            target=refused.target,
            kind=refused.kind if kind.undeliverable else _plain(kind),
            size_bytes=refused.largest_bytes + HEADROOM_BYTES,
            encrypted=refused.encrypted,
            signed=refused.signed,
        )
        world.machines[source].people.submit(
            burst, FIRST_FOLLOWING * (number + 1) + place * FOLLOWING_OF_ONE + left
        )
    world.events.at(now_ms + FOLLOWING_EVERY_MS, _follow, world, fault, left - 1)


def _keepers(world: World, messages: list[Message]) -> list[str]:
    """Return the nodes that still have to send some of these messages.

    Messages in sequences do not count, because they keep their routes.
    """
    names = {message.identity for message in messages if message.place is None}
    return [node.name for node in world.nodes.values() if names and _keeps(node, names)]


def _keeps(node: WatchedNode, names: set[bytes]) -> bool:
    packets = [
        row.packet
        for queue in node.disk.queues.values()
        if queue.kind is QueueKind.OUTGOING
        for row in node.disk.rows(queue.queue)
    ]
    if node.core is not None:
        packets += [found.packet for found in node.core.whereabouts().unstored() if found.spot in TO_BE_SENT]
    return any(identity_of(packet) in names for packet in packets)


def _is_followed(world: World, message: Message) -> bool:
    """Return whether a message sent in the calm is in the same sequence as this one.

    The result is True for a message that is not in a sequence.
    """
    if message.place is None:
        return True
    return any(
        other.place is not None
        and other.place[0] == message.place[0]
        and other.burst.source == message.burst.source
        and other.burst.at_ms >= world.scenario.storm_ms
        for other in world.ledger.accepted
    )


def _plain(kind: Kind) -> str:
    """Return the kind that takes the same route, but has neither deadlines nor dead letters."""
    if kind.unmet:
        return to_a_stranger("final ack" if kind.transactional else "recoverable")
    if kind.direct:
        return "direct"
    return "transactional" if kind.transactional else "recoverable"


def _has_ended(message: Message) -> bool:
    """Return whether the outcome of a message is known."""
    is_told = message.letters or message.refusals or message.lost_copies or message.was_not_encrypted
    return bool(message.receipts or message.gone or message.deleted or is_told)


def simulate(
    scenario: Scenario,
    *,
    traced: bool = False,
    capture: BinaryIO | None = None,
    segment_bytes: int = MAX_SEGMENT_BYTES,
) -> WorldResult:
    """Run a scenario from its first event to its last check; the arguments are those of World.

    Raises:
        OSError: the capture could not be written; the run continued without it.
    """
    world = World(scenario, traced=traced, capture=capture, segment_bytes=segment_bytes)
    try:
        result = run(world)
        if world.sniffer is not None:
            world.sniffer.close()
    finally:
        world.take_apart()
    return result
