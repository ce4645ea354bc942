"""Draws a scenario from a seed: the nodes, their messages, and the kinds and strength of faults.

Each subject has its own dice, so an extra draw for one subject does not change the others. Only whole numbers are
drawn, so the result does not depend on a machine's arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Final

from mqproto.base.configuration import WINDOWS_REMEMBERED
from mqproto.messages.drafts import (
    BODY_LIMIT_BYTES,
    LETTER_BYTES,
    SEALING_BYTES,
    SECURITY_BYTES,
    SIGNATURE_BYTES,
)
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.world.faults.attacks import draw_attacks, draw_visits
from mqproto.simulator.world.faults.doubts import draw_doubters, draw_late_words
from mqproto.simulator.world.faults.readings import draw_readings
from mqproto.simulator.world.faults.table import DETOUR_MS, FAULTS
from mqproto.simulator.world.node.files import DEATHS
from mqproto.simulator.world.scenarios.scenario import Burst, Cable, Consumer, Counters, Fault, Scenario
from mqproto.simulator.world.scenarios.traffic import KINDS, by_its_guid, to_a_stranger
from mqproto.simulator.world.scenarios.ways import steps_between
from mqproto.transfer.cursors import LAST_NUMBER, TRANSACTION_LIMIT

NAMES: Final = "abcdefg"
CALLER, CALLED = STRANGERS = ("a", "b")
"""The two nodes of a world in which no node knows any other.

In half of these worlds, nobody can call the first node.
"""
SHAPES: Final = ("pair", "chain", "chain", "chain", "two routes", "two routes", "fan-in", "ring", "mesh")
ON_LINKS: Final = frozenset({"reset", "stall", "refuse", "silence", "half open"})
AT_FORKS: Final = frozenset({"reroute", "detour"})
APART: Final = frozenset(
    {
        "cut",
        "put back",
        "hurt message",
        "impostor",
        "order acks otherwise",
        "picky",
        "new keys",
        "withdraw keys",
    }
)
"""The faults that `draw_faults` leaves out, because other functions draw them."""
TRAFFIC: Final = {
    "transactional": 10,
    "final ack": 3,
    "direct": 2,
    "journaled": 2,
    "to reach": 2,
    "to receive": 2,
    "to reach, no letter": 1,
    "nowhere": 1,
    "wrong queue": 1,
    "recoverable": 4,
    "acknowledged": 2,
    "recoverable to reach": 1,
    "express": 2,
}
"""The weights with which the kinds of traffic are drawn."""
MIXED: Final = ("transactional", "to reach", "to reach", "to reach, no letter")
"""The kinds of messages that are sent from a source while it is paused.

Some of these messages will expire, and some will not.
"""
PAUSE_MS: Final = 4_500
BARRED_MS: Final = 2_000
"""The minimum time, in milliseconds, for which a route is barred. It is long enough for a node to try the route in
vain."""
MESSAGES: Final = 100
"""The approximate number of messages in a world."""
HEADERS_BYTES: Final = 2_000
"""The maximum size of a packet without its body, in bytes."""

LARGEST_PROTECTED_BYTES: Final = BODY_LIMIT_BYTES - SECURITY_BYTES - SEALING_BYTES - SIGNATURE_BYTES


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed. It is always the same for the same seed."""
    nodes, pairs = _topology(chance(seed, "topology"))
    unmet = chance(seed, "met").randrange(10) == 3  # Few of the seeds that tests name.
    uncalled = CALLER if unmet and chance(seed, "uncalled").randrange(2) else ""
    if unmet:
        nodes, pairs = STRANGERS, [STRANGERS]
    links = tuple(_link(chance(seed, "link of", f"{one}-{other}"), one, other) for one, other in pairs)
    storm_ms = chance(seed, "length").choice((5_000, 20_000, 60_000, 180_000))
    times = Times(chance(seed, "rush"), storm_ms)
    doubters = draw_doubters(chance(seed, "doubters"), nodes)
    bursts = tuple(_traffic(chance(seed, "traffic"), nodes, pairs, times))
    bursts, of_bursts, absent = _extended(seed, bursts, links, doubters, storm_ms)
    if unmet:
        bursts = tuple(_between_strangers(bursts, uncalled))
    if has_keys := not unmet and chance(seed, "secrets").randrange(10) == 0:
        bursts = tuple(_protected(chance(seed, "protected"), bursts))
    bursts = tuple(_choosing(chance(seed, "letters"), bursts))
    consumers = list(_consumers(chance(seed, "consumers"), bursts))
    consumers = list(_crowd(chance(seed, "crowd"), consumers))
    hasty = _hasty(chance(seed, "hasty"), _poisoned(chance(seed, "poison"), consumers))
    attacks = tuple(draw_attacks(chance(seed, "impostors"), nodes, links, bursts, storm_ms))
    if unmet:
        attacks = tuple(draw_visits(chance(seed, "impostors"), nodes, bursts, storm_ms))
    put_back, counters = tuple(_put_back(seed, nodes, storm_ms)), _counters(chance(seed, "counters"))
    readings = tuple(draw_readings(chance(seed, "readings"), nodes))
    if put_back or (counters is not None and counters.sequence):
        readings = ()  # A number alone does not tell that its source's store is from an earlier moment.
    drawn = Scenario(
        seed=seed,
        nodes=nodes,
        links=links,
        bursts=bursts,
        consumers=tuple(_late(chance(seed, "late"), hasty, absent, storm_ms)),
        faults=(
            *draw_faults(seed, nodes, links, bursts, times),
            *of_bursts,
            *_cut(seed, nodes, links, bursts, storm_ms),
            *_barred(seed, nodes, links, bursts, storm_ms),
            *put_back,
            *_hurt_messages(seed, nodes, storm_ms),
            *attacks,
            *readings,
            *_picky(chance(seed, "picky"), nodes, links, bursts),
            *(_keys(chance(seed, "new keys"), nodes, bursts, times) if has_keys else ()),
        ),
        doubters=doubters,
        unmet=unmet,
        uncalled=uncalled,
        strangers=unmet or (bool(attacks) and chance(seed, "open to strangers").randrange(2) == 0),
        storm_ms=storm_ms,
        counters=counters,
    )
    return _configured(drawn, has_keys=has_keys, meets_strangers=unmet or bool(attacks))


def _extended(
    seed: int, bursts: tuple[Burst, ...], links: tuple[Cable, ...], doubters: tuple[str, ...], storm_ms: int
) -> tuple[tuple[Burst, ...], tuple[Fault, ...], str | None]:
    """Give ordinary bursts sizes and deadlines, and add bursts of messages that expire.

    The added messages leave gaps in sequences, or expire in queues or on their way.

    Returns:
        All bursts, the faults that belong to the added bursts, and the name of a node at which nobody
        receives.
    """
    bursts = tuple(
        replace(burst, sizes_bytes=_sizes(chance(seed, "sizes", str(number))))
        for number, burst in enumerate(bursts)
    )
    mixed, faults = _gaps(chance(seed, "gaps"), bursts, storm_ms)
    bursts = tuple(_hurried(chance(seed, "hurry"), bursts + mixed))
    overdue, absent = _overdue(chance(seed, "overdue"), bursts, storm_ms)
    bursts += overdue
    doubted, late_words = draw_late_words(chance(seed, "late words"), doubters, links, bursts, storm_ms)
    return bursts + doubted, faults + late_words, absent


def _configured(drawn: Scenario, *, has_keys: bool, meets_strangers: bool) -> Scenario:
    """Return the scenario with settings and limits for its nodes."""
    seed, nodes, bursts = drawn.seed, drawn.nodes, drawn.bursts
    of_settings = chance(seed, "settings")
    settings = _settings(of_settings)
    askers = _askers(of_settings, chance(seed, "pings"), nodes)
    if chance(seed, "history").randrange(3) == 0:
        # Just enough for twice the window of each node, of both kinds; a node with a window of its own has 2.
        window = max(2, settings["window_size"])
        settings["remove_duplicate_size"] = WINDOWS_REMEMBERED * window * len(nodes)
        settings["remove_duplicate_cleanup_ms"] = chance(seed, "age").choice((1_000, 1_800_000))
    if limit := chance(seed, "sequences").choice((0,) * 10 + (1, 2)):
        settings["maximum_sequences"] = limit
    # Longer than the shortest resend timeout: before it, what is lost would never be sent again.
    if cleanup_ms := chance(seed, "cleanup").choice((0,) * 8 + (1_500, 5_000)):
        settings["session_cleanup_timeout_ms"] = cleanup_ms
    rooms: dict[str, int] = {}
    if len({(burst.source, burst.target) for burst in bursts}) == 1:
        # By the specification, two nodes that are full of messages for each other wait for ever.
        settings["quota_bytes"] = chance(seed, "store quota").choice((8 * 2**30, 40_000))
        if chance(seed, "room").randrange(3) == 0:
            rooms[bursts[0].target] = 3 * (max(burst.largest_bytes for burst in bursts) + HEADERS_BYTES)
    if has_keys:
        settings |= _key_settings(chance(seed, "key settings"))
    if meets_strangers:
        settings["strangers_sequences"] = chance(seed, "places").choice((1_000, 1, 2))
    return replace(
        drawn,
        settings=settings,
        routes={name: chance(seed, "route", name).randrange(3) for name in nodes},
        costs=_costs(chance(seed, "costs"), nodes, drawn.links),
        rooms=rooms,
        windows={name: 2 for name in nodes if chance(seed, "window", name).randrange(8) == 0},
        askers=askers,
        quota_bytes=chance(seed, "quota").choice((0,) * 8 + (3_000, 10_000)),
        log_bytes=chance(seed, "log").choice((0, 0, 2_000, 20_000)),
    )


class Times:
    """Draws the times of events.

    They are spread over the storm, or are mostly in a few rushes, in which the events disturb each other.
    """

    def __init__(self, dice: random.Random, storm_ms: int) -> None:
        self.storm_ms = storm_ms
        self._rushes = [dice.randrange(storm_ms) for _ in range(dice.choice((0, 1, 2, 5)))]

    def draw(self, dice: random.Random) -> int:
        """Draw a time within the storm."""
        at_ms = dice.randrange(self.storm_ms)
        if self._rushes and dice.randrange(4):
            at_ms = min(dice.choice(self._rushes) + dice.randrange(1_000), self.storm_ms - 1)
        return at_ms


def _topology(dice: random.Random) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Draw the nodes, and the pairs of them that are neighbours."""
    shape = dice.choice(SHAPES)
    count = {"pair": 2, "two routes": 4}.get(shape) or dice.randrange(3, len(NAMES) + 1)
    if shape == "chain":
        count = dice.choice((3, 3, 3, 4, 5))
    nodes = tuple(NAMES[:count])
    row = list(pairwise(nodes))
    if shape in ("pair", "chain"):
        return nodes, row
    if shape == "two routes":
        return nodes, [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    if shape == "fan-in":
        return nodes, [(name, "b") for name in nodes if name != "b"]
    if shape == "ring":
        return nodes, [*row, (nodes[0], nodes[-1])]
    others = [(one, other) for one in nodes for other in nodes if one < other and (one, other) not in row]
    return nodes, [*row, *(pair for pair in others if dice.randrange(3) == 0)]


def _link(dice: random.Random, one: str, other: str) -> Cable:
    return Cable(
        one=one,
        other=other,
        latency_ms=dice.choice((1, 1, 5, 20, 100)),
        jitter_ms=dice.choice((0, 0, 3, 30)),
        cut_per_mille=dice.choice((0, 0, 20, 200)),
    )


def _traffic(
    dice: random.Random, nodes: tuple[str, ...], pairs: list[tuple[str, str]], times: Times
) -> Iterable[Burst]:
    """Draw bursts between a few pairs of nodes, with about `MESSAGES` messages in total."""
    ends = [_ends(dice, nodes, pairs) for _ in range(dice.choice((1, 1, 2, 3, 5)))]
    neighbours = {*pairs, *((other, one) for one, other in pairs)}
    kinds = [dice.choices(list(TRAFFIC), list(TRAFFIC.values()))[0] for _ in range(dice.choice((1, 2, 4)))]
    largest = dice.choice((1, 5, 10, 30))
    left = MESSAGES
    while left > 0:
        source, target = dice.choice(ends)
        kind = dice.choice(kinds)
        if kind == "direct" and (source, target) not in neighbours:
            kind = "transactional"
        count = min(left, dice.randrange(1, largest + 1))
        left -= count
        yield Burst(
            at_ms=times.draw(dice),
            source=source,
            target=target,
            kind=kind,
            count=count,
            size_bytes=dice.choice((0, 40, 40, 200, 1_000, 5_000)),
            priority=dice.choice((3, 3, 0, 7)),
            together=dice.randrange(2) == 0,
        )


def _sizes(dice: random.Random) -> tuple[int, ...]:
    """Draw the sizes of a burst's messages.

    In one burst out of three they differ, so that there are large messages between small ones.
    """
    if dice.randrange(3):
        return ()
    sizes_bytes = [dice.choice((0, 40, 200, 1_000, 5_000, 40_000)) for _ in range(dice.choice((2, 3, 5)))]
    if dice.randrange(200) == 0:
        sizes_bytes.append(BODY_LIMIT_BYTES)
    return tuple(sizes_bytes)


def _between_strangers(bursts: Iterable[Burst], uncalled: str) -> Iterable[Burst]:
    """Move the bursts to two nodes that know only each other's addresses.

    If nobody can call one of them, it calls the other node first, and again while it awaits an answer. The messages
    from the other node address it by its GUID.
    """
    if uncalled:
        yield Burst(at_ms=0, source=CALLER, target=CALLED, kind=to_a_stranger("final ack"))
    for burst in bursts:
        target = CALLED if burst.source == CALLER else CALLER
        kind = to_a_stranger(burst.kind) if target != uncalled else by_its_guid(burst.kind)
        yield replace(burst, target=target, kind=kind)


def _protected(dice: random.Random, bursts: Iterable[Burst]) -> Iterable[Burst]:
    """Encrypt half, and sign a third, of the bursts that are not sent to a direct format name.

    In some bursts, sources ask for an acknowledgment of each message that is not received. Such an acknowledgment could
    repeat a secret.
    """
    for burst in bursts:
        encrypted, signed, heard_of = dice.randrange(2) == 0, dice.randrange(3) == 0, dice.randrange(2) == 0
        if burst.kind.startswith(("recoverable", "express")) and heard_of:
            burst = replace(burst, kind="express to receive, heard of")
        if not KINDS[burst.kind].direct:
            sizes_bytes = tuple(min(size, LARGEST_PROTECTED_BYTES) for size in burst.sizes_bytes)
            burst = replace(burst, encrypted=encrypted, signed=signed, sizes_bytes=sizes_bytes)
        yield burst


def _choosing(dice: random.Random, bursts: Iterable[Burst]) -> Iterable[Burst]:
    """In one world out of six, make sources choose a dead-letter queue.

    They choose one for three quarters of the bursts that ask for dead letters.
    """
    chooses = dice.randrange(6) == 0
    for burst in bursts:
        asks = chooses and KINDS[burst.kind].dead_lettered and dice.randrange(4) > 0
        if asks:
            sizes_bytes = tuple(
                min(size, LARGEST_PROTECTED_BYTES - LETTER_BYTES) for size in burst.sizes_bytes
            )
            burst = replace(burst, chooses=True, sizes_bytes=sizes_bytes)
        yield burst


def _key_settings(dice: random.Random) -> dict[str, int]:
    """Draw settings that limit how many session keys are remembered, and for how long."""
    return {
        "symmetric_key_short_lifetime_ms": dice.choice((1_000, 600_000)),
        "send_symmetric_key_cache_size": dice.choice((1, 53)),
        "receive_symmetric_key_cache_size": dice.choice((1, 127)),
        "user_cert_lifetime_ms": dice.choice((1_000, 1_200_000)),
    }


def _keys(
    dice: random.Random, nodes: tuple[str, ...], bursts: Iterable[Burst], times: Times
) -> Iterable[Fault]:
    """Draw nodes that replace their keys while messages are on their way.

    In half of these worlds, a source also loses all public keys of other nodes for a time. It may be paused until it
    has lost them, so that messages wait.
    """
    ends = [(burst.source, burst.target) for burst in bursts if burst.encrypted]
    if not ends:
        return
    for _ in range(dice.choice((0, 1, 2, 5))):
        for_ms = dice.choice((0, 0, 10, 1_000, 5_000))
        yield Fault(at_ms=times.draw(dice), kind="new keys", where=dice.choice(ends)[1], for_ms=for_ms)
    for _ in range(dice.choice((0, 0, 1, 2))):
        at_ms, source = times.draw(dice), dice.choice(ends)[0]
        for_ms = dice.choice((10, 1_000, 5_000, 30_000))
        yield Fault(at_ms=at_ms, kind="withdraw keys", where=source, for_ms=for_ms)
        if dice.randrange(2):
            begins_ms = max(0, at_ms - PAUSE_MS)
            yield Fault(at_ms=begins_ms, kind="hold", where=source, for_ms=at_ms + 1 - begins_ms)


def _hurried(dice: random.Random, bursts: Iterable[Burst]) -> Iterable[Burst]:
    """Give half of the express messages a deadline."""
    for burst in bursts:
        kind = dice.choice(("express", "express", "express to reach", "express to receive"))
        yield replace(burst, kind=kind) if burst.kind == "express" else burst


def _overdue(
    dice: random.Random, bursts: Iterable[Burst], storm_ms: int
) -> tuple[tuple[Burst, ...], str | None]:
    """In one out of four long worlds, nobody receives at one node until the calm. Many messages there expire at once.

    Returns:
        These messages, and the name of the node.
    """
    ends = [(burst.source, burst.target) for burst in bursts if KINDS[burst.kind].transactional]
    if dice.randrange(4) or not ends or storm_ms < 60_000:
        return (), None
    source, target = dice.choice(ends)
    kinds = ("to receive", dice.choice(("to receive", "transactional")))
    return tuple(
        Burst(
            at_ms=dice.randrange(storm_ms // 4),
            source=source,
            target=target,
            kind=kind,
            count=dice.choice((5, 12)),
            size_bytes=dice.choice((40, 1_000)),
            together=True,
        )
        for kind in kinds
    ), target


def _gaps(
    dice: random.Random, bursts: Iterable[Burst], storm_ms: int
) -> tuple[tuple[Burst, ...], tuple[Fault, ...]]:
    """In one world out of six, pause a source until part of a sequence has expired. Later messages then bridge gaps.

    Around the time at which it resumes, the source may resend messages or restart, or the target may send no OrderAcks.
    """
    ends = [
        (burst.source, burst.target)
        for burst in bursts
        if burst.source != burst.target and KINDS[burst.kind].transactional and not KINDS[burst.kind].direct
    ]
    if dice.randrange(6) or not ends:
        return (), ()
    source, target = dice.choice(ends)
    at_ms = dice.randrange(max(1, storm_ms - 2 * PAUSE_MS))
    mixed = [
        Burst(
            at_ms=at_ms + 2 + number,
            source=source,
            target=target,
            kind=kind,
            count=dice.choice((1, 2, 3)),
            size_bytes=dice.choice((40, 1_000)),
        )
        for number, kind in enumerate(dice.choices(MIXED, k=dice.choice((4, 6))))
    ]
    kind = dice.choice(("impatient", "impatient", "kill", "deaf"))
    where = target if kind == "deaf" else source
    again_ms = at_ms + PAUSE_MS + dice.choice((-500, 5, 30, 300))
    return tuple(mixed), (
        Fault(at_ms=at_ms, kind="hold", where=source, for_ms=PAUSE_MS),
        Fault(at_ms=again_ms, kind=kind, where=where, for_ms=dice.choice((1, 5_000))),
    )


def _late(
    dice: random.Random, consumers: Iterable[Consumer], absent: str | None, storm_ms: int
) -> Iterable[Consumer]:
    """Make one consumer in four start late, when messages are already waiting.

    The consumers of the node `absent` start only at the end of the storm.
    """
    for consumer in consumers:
        begins_ms = dice.choice((0, 0, 0, storm_ms // 2))
        yield replace(consumer, begins_ms=storm_ms - 1 if consumer.node == absent else begins_ms)


def _ends(dice: random.Random, nodes: tuple[str, ...], pairs: list[tuple[str, str]]) -> tuple[str, str]:
    """Draw a source and a target. Usually, there is another node between them.

    Occasionally, one node is both.
    """
    source, target = dice.choice(nodes), dice.choice(nodes)
    if dice.randrange(8) == 0:
        return source, target
    far = [
        (one, other)
        for one in nodes
        for other in nodes
        if one != other and (one, other) not in pairs and (other, one) not in pairs
    ]
    return dice.choice(far) if far and dice.randrange(4) else dice.choice(pairs)


def _consumers(dice: random.Random, bursts: Iterable[Burst]) -> Iterable[Consumer]:
    for node in sorted({burst.target for burst in bursts}):
        for queue in ("orders", "notes"):
            for _ in range(dice.choice((1, 1, 1, 2))):
                yield Consumer(
                    node=node,
                    queue=queue,
                    limit=dice.choice((1, 7, 100)),
                    hold_ms=dice.choice((0, 0, 10, 500)),
                    pause_ms=dice.choice((0, 10, 1_000)),
                    rolls_back_every=dice.choice((0, 0, 2, 5)),
                    leaves_every=dice.choice((0, 0, 0, 3)),
                    rejects_every=dice.choice((0,) * 9 + (4,)),
                    transactional=dice.randrange(5) > 0,
                )


def _crowd(dice: random.Random, consumers: list[Consumer]) -> Iterable[Consumer]:
    """In one world out of four, give a queue more consumers. They hold messages, and give them back in any order."""
    yield from consumers
    if dice.randrange(4):
        return
    crowded = dice.choice(consumers)
    for _ in range(dice.choice((2, 3, 4))):
        yield Consumer(
            node=crowded.node,
            queue=crowded.queue,
            limit=dice.choice((1, 2, 3)),
            pause_ms=dice.choice((100, 300, 1_000)),
            rolls_back_every=dice.choice((1, 2, 3)),
            leaves_every=dice.choice((0, 0, 3)),
            holds_ms=tuple(dice.choice((0, 10, 100, 300, 1_000)) for _ in range(dice.choice((1, 2, 3)))),
        )


def _poisoned(dice: random.Random, consumers: list[Consumer]) -> Iterable[Consumer]:
    """In one world out of four, make some messages of a queue poison for all its consumers."""
    chosen = dice.choice(consumers)
    chokes_every, gives_up_after = dice.choice((3, 7)), dice.choice((2, 3, 5))
    poisons = dice.randrange(4) == 0
    for consumer in consumers:
        if poisons and (consumer.node, consumer.queue) == (chosen.node, chosen.queue):
            consumer = replace(consumer, chokes_every=chokes_every, gives_up_after=gives_up_after)
        yield consumer


def _hasty(dice: random.Random, consumers: Iterable[Consumer]) -> Iterable[Consumer]:
    """Make one consumer in eight ask again, in vain, while it waits for an answer and before it settles."""
    for consumer in consumers:
        yield replace(consumer, asks_twice=dice.randrange(8) == 0)


def draw_faults(
    seed: int, nodes: tuple[str, ...], links: tuple[Cable, ...], bursts: Iterable[Burst], times: Times
) -> Iterable[Fault]:
    """Draw a few faults of some kinds; the seed determines the kinds.

    The last faults may occur when nobody is sending anymore.
    """
    strength = chance(seed, "strength").choice((1, 3, 8))
    variety = chance(seed, "variety").choice((0, 2, 5))
    steps = steps_between(nodes, links)
    ends = {(burst.source, burst.target) for burst in bursts}
    forks = sorted({pair[0] for pair in ends if len(steps.get(pair, ())) > 1})
    for kind in (kind for kind in FAULTS if kind not in APART):
        dice = chance(seed, "fault", kind)
        where = forks if kind in AT_FORKS else [link.name for link in links] if kind in ON_LINKS else nodes
        if not where or dice.randrange(10) >= variety:
            continue
        for _ in range(dice.randrange(1, strength + 1)):
            fault = Fault(
                at_ms=times.draw(dice),
                kind=kind,
                where=dice.choice(where),
                for_ms=dice.choice((1, 100, 1_000, 5_000, 30_000)),
                value=_value(dice, kind),
            )
            yield fault
            if kind == "detour" and dice.randrange(2):
                # What took the detour is held until the rest comes; its node must not forget it in a crash.
                goals = sorted(target for source, target in ends if source == fault.where)
                at_ms = min(fault.at_ms + dice.randrange(DETOUR_MS, 3 * DETOUR_MS), times.storm_ms - 1)
                yield Fault(at_ms=at_ms, kind="kill", where=dice.choice(goals), for_ms=1)


def _cut(
    seed: int, nodes: tuple[str, ...], links: tuple[Cable, ...], bursts: Iterable[Burst], storm_ms: int
) -> Iterable[Fault]:
    """In half of the worlds with a spare link, break a link for good, and later take it off the map.

    All nodes stay connected, because a node that forges acknowledgments sends them to any node. A link for direct names
    is never spare, because messages to direct names take no other route.
    """
    dice = chance(seed, "cut")
    direct = {frozenset((burst.source, burst.target)) for burst in bursts if KINDS[burst.kind].direct}
    spare = [
        link.name
        for link in links
        if frozenset((link.one, link.other)) not in direct
        and len(steps_between(nodes, [other for other in links if other is not link]))
        == len(nodes) * (len(nodes) - 1)
    ]
    if spare and dice.randrange(2):
        at_ms = dice.randrange(storm_ms)
        for_ms = dice.randrange(1 + min(storm_ms - 1 - at_ms, 10_000))
        yield Fault(at_ms=at_ms, kind="cut", where=dice.choice(spare), for_ms=for_ms)


def _barred(
    seed: int, nodes: tuple[str, ...], links: tuple[Cable, ...], bursts: Iterable[Burst], storm_ms: int
) -> Iterable[Fault]:
    """In one out of four worlds with a choice of routes, bar the first route of a burst.

    It is barred from the time of the burst until the calm. The burst's source tries the route again and again, and
    takes it once it is open.
    """
    dice = chance(seed, "barred")
    steps = steps_between(nodes, links)
    early = [
        burst
        for burst in bursts
        if len(steps.get((burst.source, burst.target), ())) > 1
        and not KINDS[burst.kind].direct
        and burst.at_ms < storm_ms - BARRED_MS
    ]
    if early and dice.randrange(4) == 0:
        burst = dice.choice(early)
        ways = steps[burst.source, burst.target]
        first = ways[chance(seed, "route", burst.source).randrange(3) % len(ways)]
        at_ms = max(0, burst.at_ms - 1)
        ends = {burst.source, first}
        where = next(link.name for link in links if {link.one, link.other} == ends)
        yield Fault(at_ms=at_ms, kind="refuse", where=where, for_ms=storm_ms - at_ms)


def _picky(
    dice: random.Random, nodes: tuple[str, ...], links: tuple[Cable, ...], bursts: Iterable[Burst]
) -> Iterable[Fault]:
    """In one world out of six, make a node refuse certain messages, forever or for a while.

    The messages are sent to that node or pass through it. There is only one such node. If two nodes refused each
    other's messages, they would keep closing the sessions on which these messages are retried.
    """
    chosen = [
        (number, burst)
        for number, burst in enumerate(bursts)
        if burst.source != burst.target and burst.largest_bytes < BODY_LIMIT_BYTES
    ]
    if dice.randrange(6) != 1 or not chosen:
        return
    steps = steps_between(nodes, links)
    picky = ""
    for number, burst in dice.sample(chosen, min(dice.choice((1, 1, 1, 2, 3)), len(chosen))):
        where = dice.choice(steps[burst.source, burst.target])
        while where != burst.target and dice.randrange(2):
            where = dice.choice(steps[where, burst.target])
        for_ms = dice.choice((0, 0, 0, 2_000, 10_000))
        picky = picky or where
        if where == picky:
            yield Fault(at_ms=max(0, burst.at_ms - 1), kind="picky", where=where, for_ms=for_ms, value=number)


def _put_back(seed: int, nodes: tuple[str, ...], storm_ms: int) -> Iterable[Fault]:
    """In one world out of eight, restore a node's store to an earlier state, or lose the store, once or twice."""
    dice = chance(seed, "put back")
    if dice.randrange(8) == 0:
        where = dice.choice(nodes)
        for _ in range(dice.choice((1, 1, 2))):
            at_ms = dice.randrange(storm_ms)
            for_ms = min(dice.choice((100, 1_000, 5_000, 20_000)), storm_ms - at_ms)
            yield Fault(
                at_ms=at_ms, kind="put back", where=where, for_ms=for_ms, value=dice.choice((0, 0, 1))
            )


def _hurt_messages(seed: int, nodes: tuple[str, ...], storm_ms: int) -> Iterable[Fault]:
    """In one world out of six, damage a few messages while their node is down."""
    dice = chance(seed, "hurt message")
    if dice.randrange(6) == 0:
        for _ in range(dice.choice((1, 2, 5))):
            at_ms, for_ms = dice.randrange(storm_ms), dice.choice((1, 100, 1_000))
            where, value = dice.choice(nodes), dice.randrange(1_000)
            yield Fault(at_ms=at_ms, kind="hurt message", where=where, for_ms=for_ms, value=value)


def _value(dice: random.Random, kind: str) -> int:
    if kind == "slow disk":
        return dice.choice((1, 10, 100, 2_000))
    if kind in ("die in commit", "die at start"):
        return len(DEATHS) * dice.choice((0, 1, 2, 3, 4, 5, 6, 8, 13)) + dice.randrange(len(DEATHS))
    if kind == "full disk":
        return dice.choice((0, 300, 3_000))
    if kind == "jump clock":
        return dice.choice((-86_400, -60, -1, 1, 60, 3_600, 86_400))
    if kind == "stall":
        return dice.randrange(3)
    if kind == "silence":
        return 0
    if kind == "stranger":
        return dice.randrange(5)
    return dice.randrange(2)


def _costs(dice: random.Random, nodes: tuple[str, ...], links: tuple[Cable, ...]) -> dict[str, int]:
    """In one out of four worlds with a choice of routes, make each node the gate of a site, and give the links
    costs.
    """
    costs = {link.name: dice.choice((1, 1, 2, 3, 5)) for link in links}
    return costs if dice.randrange(4) == 0 and len(links) >= len(nodes) else {}


def _askers(whether: random.Random, who: random.Random, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """In one world out of four, make all nodes, or about half of them, ping before they connect."""
    if not whether.choice((0, 0, 0, 1)):
        return ()
    return nodes if who.randrange(2) else tuple(name for name in nodes if who.randrange(2))


def _counters(dice: random.Random) -> Counters | None:
    """In one world out of four, draw counters that will soon wrap around or reach their end."""
    if dice.randrange(4):
        return None
    near = dice.choice((2, 10, 40))
    return Counters(
        session=dice.choice((0, 2**16 - near, 2**16 - near, 2**15 - near)),
        sequence=dice.choice((0, LAST_NUMBER - TRANSACTION_LIMIT - near, 2**31 - near)),
        message_id=dice.choice((0, 2**32 - near, 2**31 - near)),
    )


def _settings(dice: random.Random) -> dict[str, int]:
    """Draw small limits and short timers, so that even a short run reaches them."""
    return {
        "window_size": dice.choice((1, 4, 64)),
        "try_connect_interval_ms": dice.choice((200, 1_000)),
        "resend_timeouts_short_s": 1,
        "resend_timeouts_medium_s": 3,
        "resend_timeouts_long_s": 10,
        "resend_timeouts_final_s": 60,
        "order_ack_timeout_ms": dice.choice((50, 500)),
        "resident_messages": dice.choice((1, 2, 16, 512)),
        "resident_bytes": dice.choice((300, 4_000, 30_000, 4 * 2**20)),
        "in_flight_bytes": dice.choice((300, 8 * 2**20)),
        "resend_batch": dice.choice((1, 2, 50, 1_024)),
        "held_messages_limit": dice.choice((1, 10, 4_096)),
    }
