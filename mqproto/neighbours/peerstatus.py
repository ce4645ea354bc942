"""Describes peers to operators: who they are, what they do, which messages wait for them, and floods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from heapq import nlargest
from operator import attrgetter
from typing import Final

from mqproto.base.moment import Moment
from mqproto.neighbours.blocks import Blocks, overlap
from mqproto.neighbours.hosts import OTHERS, Figures, Hosts, HostTally, Who
from mqproto.neighbours.met import Acquaintance, How, Met
from mqproto.routing.peers import Peer, host_group
from mqproto.session import Session
from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.outgoing import ORDER_SUFFIX, OutgoingQueue
from mqproto.wire.guid import NULL_GUID, Guid, guid_text

FLOOD_SESSIONS: Final = 100
FLOOD_MESSAGES: Final = 6_000
FLOOD_BYTES: Final = 64 * 2**20
FLOOD_REFUSALS: Final = 100
"""A host counts as flooding only if it reaches one of these four limits within a minute."""
FLOODS_SHOWN: Final = 4
"""The maximum number of flooding hosts that are named; the busiest are chosen."""


UNACKNOWLEDGED: Final = attrgetter("unacknowledged_count")


class Kind(StrEnum):
    """How a peer is related to us."""

    NEIGHBOUR = "neighbour"
    CLAIMS = "claims"
    """The peer presents the GUID of a known queue manager, and is not believed."""
    STRANGER = "stranger"
    OTHERS = "others"
    """All strangers at a host that are not counted individually, because there are too many."""
    UNKNOWN = "unknown"
    """The actions of a host on its connections, before a queue manager identified itself on them."""


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A peer that is or was connected. Counts begin at `first_s`.

    manager: the GUID that it presents; empty if it has presented none, or if this entry stands for several peers.
    tls: whether a certificate has proven the GUID.
    sessions, half_open: the number of its present sessions that are open, and of those that are not open yet.
    first_s, last_s: when it was first and last connected, UTC; `last_s` is accurate to within 10 seconds.
    opened, messages, size_bytes, sent, sent_bytes, refused, ended: as in `Figures`.
    reason: why its last refused connection or message was refused; empty if none was.
    sequences, held_bytes: the number of its incoming sequences, and of the bytes that they hold after gaps.
    acknowledgments: the number of messages that wait to be sent to its order queue.
    blocked: whether it is blocked, so that it gets no answer.
    acknowledged_s, round_trip_s: as in `SessionStatus`, but each is the longest time of all its sessions. The caller
        fills these in.
    """

    host: str
    kind: Kind
    manager: str
    tls: bool
    sessions: int
    half_open: int
    first_s: int
    last_s: int
    opened: int
    messages: int
    size_bytes: int
    sent: int
    sent_bytes: int
    refused: int
    ended: int
    reason: str
    sequences: int
    held_bytes: int
    acknowledgments: int
    blocked: bool
    acknowledged_s: float | None = None
    round_trip_s: float | None = None


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """An open session.

    host: the neighbour's address.
    manager: the GUID that the neighbour presents.
    window: how many messages may be unacknowledged at a time; 1 while the neighbour pauses.
    unacknowledged: the number of unacknowledged messages.
    key: the session's number, as in logs.
    acknowledged_s: the smoothed time until the neighbour acknowledges a message, including the time that the network
        and the neighbour's disk take; None if it has acknowledged none.
    round_trip_s: TCP's round-trip time as measured by the operating system, without the neighbour's own work; None if
        the system does not know it. The caller fills this in.
    """

    host: str
    manager: str
    window: int
    unacknowledged: int
    key: int = 0
    acknowledged_s: float | None = None
    round_trip_s: float | None = None


@dataclass(frozen=True, slots=True)
class MetStatus:
    """An undeclared queue manager that was met, or added by an operator.

    manager: its GUID; empty if that is not known yet.
    name: an operator's name for it, or empty.
    host: the address or the name at which it is called.
    address: where it was last seen; empty if it was never seen.
    how: whether it called us, was called, or was added by an operator.
    first_s, last_s: when it was first and last seen, UTC.
    other, other_s: the other address at which its GUID last turned up, and when.
    verdict: the outcome of the call to `address` after that.
    is_called: whether it may be called.
    awaited_s: the time, UTC, until which it is called for answers to messages; 0 if it is not.
    """

    manager: str
    name: str
    host: str
    address: str
    how: How
    first_s: int
    last_s: int
    other: str
    other_s: int
    verdict: str
    is_called: bool
    awaited_s: int
    also: tuple[str, ...] = ()


def describe_sessions(sessions: Iterable[Session], limit: int) -> list[SessionStatus]:
    """Describe at most `limit` open sessions: those with the most unacknowledged messages."""
    chosen = nlargest(limit, (one for one in sessions if one.is_open), key=UNACKNOWLEDGED)
    return [
        SessionStatus(
            one.remote_address,
            guid_text(one.data.remote_qm or NULL_GUID),
            one.window,
            one.unacknowledged_count,
            one.key,
            None if one.acknowledged_ms is None else one.acknowledged_ms / 1_000,
        )
        for one in chosen
    ]


def describe_met(met: Met, one: Acquaintance) -> MetStatus:
    """Describe a queue manager that was met, in a form for people."""
    return MetStatus(
        manager=guid_text(one.manager) if one.manager is not None else "",
        name=one.name,
        host=one.host,
        address=one.address,
        how=one.how,
        first_s=one.first_s,
        last_s=one.last_s,
        other=one.other,
        other_s=one.other_s,
        verdict=one.verdict,
        is_called=one.manager is None or met.may_call(one.manager),
        awaited_s=one.awaited_s,
        also=one.also,
    )


@dataclass(frozen=True, slots=True)
class FloodStatus:
    """A host that did far more than others in the last minute, or whose actions were mostly refused.

    opened, messages, size_bytes, refused: its counts for that minute; `refused` counts both connections and messages.
    managers: the GUIDs of the queue managers that are declared at this host, and would be blocked with it.
    """

    host: str
    opened: int
    messages: int
    size_bytes: int
    refused: int
    managers: list[str]


def describe_hosts(
    hosts: Hosts,
    peers: Mapping[Guid, Peer],
    outbound: Iterable[OutgoingQueue],
    incoming: Iterable[IncomingSequence],
    blocks: Blocks,
    now: Moment,
) -> Iterator[PeerStatus]:
    """Yield all peers that are or were connected, without changing anything."""
    acknowledgments = Counter[str]()
    for queue in outbound:
        if queue.count and queue.name.endswith(ORDER_SUFFIX):
            acknowledgments[host_group(queue.name.removesuffix(ORDER_SUFFIX))] += queue.count
    sequences, held_bytes = Counter[Guid](), Counter[Guid]()
    for sequence in incoming:
        sequences[sequence.source] += 1
        held_bytes[sequence.source] += sequence.held_bytes
    for tally in hosts.tallies(now):
        who, total, count = tally.who, tally.total, len(tally.sessions)
        if who.manager is None and not (count or total.ended or total.opened > tally.moved_on):
            continue  # All peers that came from there have said who they are.
        manager = who.manager or OTHERS
        name = guid_text(manager) if manager != OTHERS else ""
        is_open = 0 if who.manager is None else count
        yield PeerStatus(
            host=who.host,
            kind=_kind(who, peers),
            manager=name,
            tls=who.is_proven and manager in peers and peers[manager].certified,
            sessions=is_open,
            half_open=count - is_open,
            first_s=tally.first_s,
            last_s=now.utc_s if count else tally.last_s,
            **asdict(total),
            reason=tally.reason,
            sequences=sequences[manager],
            held_bytes=held_bytes[manager],
            acknowledgments=acknowledgments[name] + acknowledgments[who.host] if name else 0,
            blocked=blocks.covers(who.host),
        )


def _kind(who: Who, peers: Mapping[Guid, Peer]) -> Kind:
    if who.manager is None:
        return Kind.UNKNOWN
    if who.manager == OTHERS:
        return Kind.OTHERS
    if who.is_proven:
        return Kind.NEIGHBOUR
    return Kind.CLAIMS if who.manager in peers else Kind.STRANGER


def floods(tallies: Iterable[HostTally], peers: Mapping[Guid, Peer], now: Moment) -> list[FloodStatus]:
    """Return the busiest hosts that flood this node, at most FLOODS_SHOWN, the busiest first.

    Neighbours' traffic under their own identity does not count. A host floods in three cases:
    - It opens more connections than all others together, and at least FLOOD_SESSIONS.
    - It sends more messages or bytes than all other strangers together, and at least FLOOD_MESSAGES or
      FLOOD_BYTES.
    - At least FLOOD_REFUSALS of its connections and messages were refused, and these are the majority.
    """
    by_host: dict[str, Figures] = {}
    for tally in tallies:
        if not tally.who.is_proven:
            did = tally.last_minute(now)
            if tally.who.manager is not None:
                did.opened = 0  # The host has them.
            by_host.setdefault(tally.who.host, Figures()).add(did)
    everybody = Figures()
    for did in by_host.values():
        everybody.add(did)
    found = [(host, did) for host, did in by_host.items() if _is_flood(did, everybody)]
    found.sort(key=lambda one: -(one[1].opened + one[1].messages))
    return [
        FloodStatus(
            host,
            did.opened,
            did.messages,
            did.size_bytes,
            did.refused + did.ended,
            [
                guid_text(manager)
                for manager, peer in peers.items()
                if any(overlap(host, origin) for origin in peer.origins)
            ],
        )
        for host, did in found[:FLOODS_SHOWN]
    ]


def _is_flood(did: Figures, everybody: Figures) -> bool:
    more = (
        (did.opened, everybody.opened, FLOOD_SESSIONS),
        (did.messages, everybody.messages, FLOOD_MESSAGES),
        (did.size_bytes, everybody.size_bytes, FLOOD_BYTES),
    )
    # A host that this node calls in vain has done nothing.
    refused = min(did.refused + did.ended, did.opened + did.messages)
    return (refused >= FLOOD_REFUSALS and 2 * refused > did.opened + did.messages) or any(
        mine >= least and 2 * mine > all_of_it for mine, all_of_it, least in more
    )
