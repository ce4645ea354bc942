"""Turns the statuses of nodes into facts for the page. The figures are those of `mqproto queues --json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from mqproto.base.words import duration
from mqproto.captures.drawing.sequence import NARROW, SequenceProgress, spoken, strip
from mqproto.captures.drawing.shapes import as_json
from mqproto.manager.status import IncomingStatus, LocalStatus, NodeStatus, OutgoingStatus
from mqproto.simulator.client.explain import is_kept
from mqproto.simulator.client.oversee import next_hop, why_it_waits
from mqproto.simulator.console.rates import Rates
from mqproto.simulator.console.routemap import key_of
from mqproto.simulator.rig.byhand import WORDS, Deed
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.directory import known_as
from mqproto.transfer.outgoing import ORDER_SUFFIX

NO_ANSWER_S: Final = 2.0
"""The number of seconds without an answer after which a node is shown with the age of its last answer."""
SEQUENCES_SHOWN: Final = 100
OF_NODES: Final = (
    *("sessions_open", "forwarded", "refused", "expired", "duplicates", "resent"),
    *("stored_bytes", "quota_bytes", "disk_is_full", "unlisted"),
)
OF_QUEUES: Final = (
    "waiting",
    "unsettled",
    "held",
    "size_bytes",
    "quota_bytes",
    "consumers",
    "entered",
    "left",
)
OF_OUTGOING: Final = ("name", "state", "waiting", "unsent", "in_flight", "unacked", "unread", "resent")
"""The fields of an outgoing queue that are shown, by their names in `mqproto.manager.status`."""


def node_facts(
    topology: Topology, name: str, status: NodeStatus | None, age_s: float, rates: Rates, now_s: float
) -> dict[str, Any]:
    """Return the facts about one node, including its counts."""
    node = topology.nodes[name]
    found: dict[str, Any] = {
        "name": name,
        "address": f"{node.host}:{node.port}",
        "running": status is not None,
        "silent_s": round(age_s) if age_s >= NO_ANSWER_S else 0,
    }
    if status is None:
        return found
    entered = sum(queue.entered for queue in status.local)
    return found | {
        "waiting": sum(queue.waiting for queue in status.local if not is_kept(queue.name)),
        "kept": sum(queue.waiting for queue in status.local if is_kept(queue.name)),
        "outgoing": sum(queue.waiting for queue in status.outgoing) + status.unlisted_waiting,
        "held": sum(queue.held for queue in status.local),
        **_said(status, OF_NODES),
        "in_s": rates.of((name, "entered"), entered, now_s),
        "forwarded_s": rates.of((name, "forwarded"), status.forwarded, now_s),
    }


def local_facts(name: str, status: NodeStatus, rates: Rates, now_s: float) -> Iterator[dict[str, Any]]:
    """Yield the facts about a node's local queues; system queues are left out if they are empty."""
    for queue in status.local:
        if queue.waiting or not is_kept(queue.name):
            yield {
                "key": f"{name}\\{queue.name}",
                "node": name,
                "name": queue.name,
                "kind": _kind(queue),
                **_said(queue, OF_QUEUES),
                "age_s": None if queue.oldest_s is None else max(0, status.utc_s - queue.oldest_s),
                "in_s": rates.of((name, queue.name, "in"), queue.entered, now_s),
                "out_s": rates.of((name, queue.name, "out"), queue.left, now_s),
            }


def _said(status: NodeStatus | LocalStatus | OutgoingStatus, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(status, name) for name in names}


def _kind(queue: LocalStatus) -> str:
    if queue.purging:
        return "being emptied"
    if is_kept(queue.name):
        return "kept"
    return "transactional" if queue.transactional else "not transactional"


def outgoing_facts(
    topology: Topology, name: str, status: NodeStatus, broken: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the facts about a node's outgoing queues; queues for acknowledgments are left out if they are empty.

    Args:
        broken: the faults that users made, keyed by the names of links.
    """
    for queue in status.outgoing:
        if queue.waiting or queue.unread or not queue.name.endswith(ORDER_SUFFIX):
            waits = queue.waiting or queue.state == "on hold"
            hop = next_hop(topology, queue)
            yield {
                "key": f"{name} to {queue.name}",
                "node": name,
                "to": known_as(topology, queue.name),
                **_said(queue, OF_OUTGOING),
                "next_hop": hop,
                "why": "; ".join(filter(None, _why(name, hop, broken, queue, status))) if waits else "",
            }


def _why(
    name: str, hop: str, broken: Mapping[str, str], queue: OutgoingStatus, status: NodeStatus
) -> Iterator[str]:
    """Yield the reasons why messages wait: a fault that a user made on their link, and the reason that the node
    gives.
    """
    for key in (key_of(name, hop), key_of(hop, name)):
        if key in broken:
            yield f"the link is {WORDS[Deed(broken[key])]} by hand"
    yield why_it_waits(queue, status)


def sequence_facts(topology: Topology, statuses: Mapping[str, NodeStatus]) -> Iterator[dict[str, Any]]:
    """Yield the sequences of transactional messages, with their progress at both sender and destination."""
    incoming = {
        (topology.manager_name(one.source), f"{name}\\{one.queue}"): one
        for name, status in statuses.items()
        for one in status.incoming
    }
    listed = 0
    for name, status in statuses.items():
        for queue in status.outgoing:
            if not queue.sequence or queue.next_number <= 1:
                continue
            to = known_as(topology, queue.name)
            numbers = numbers_of(queue, incoming.pop((name, to), None))
            yield {"key": f"{name} to {queue.name}", "node": name, "to": to, **_of(numbers, queue, status)}
            listed += 1
            if listed == SEQUENCES_SHOWN:
                return
    # Their senders are down, or none of ours; what they have sent is not known.
    for (source, to), one in incoming.items():
        if one.held:
            last = (one.missing[1] if one.missing else one.number) + one.held
            numbers = SequenceProgress(
                confirmed=0, accepted=one.number, missing=one.missing, held=one.held, sent=last, last=last
            )
            yield {"key": f"{source} {to}", "node": source or one.source, "to": to, **_of(numbers)}


def numbers_of(queue: OutgoingStatus, at: IncomingStatus | None) -> SequenceProgress:
    """Return the progress of a sequence, as reported by its sender and, if known, by its destination."""
    last = queue.next_number - 1
    accepted = _accepted(queue, at, last)
    missing = at.missing if at is not None and accepted is not None else None
    return SequenceProgress(
        confirmed=queue.last_ack,
        accepted=accepted,
        missing=missing if missing and missing[1] <= last else None,
        held=at.held if at is not None and missing else 0,
        sent=queue.last_unacked if queue.unacked else queue.last_ack,
        last=last,
    )


def _accepted(queue: OutgoingStatus, at: IncomingStatus | None, last: int) -> int | None:
    """Return the last number that the destination has accepted in order; None if that is not known.

    The numbers of each sequence between two nodes begin with 1. If the destination still reports an earlier sequence,
    it has not accepted any message of this sequence. The two nodes are asked one after the other, so their answers may
    differ in age.
    """
    if at is None or at.sequence > queue.identifier:
        return None
    number = at.number if at.sequence == queue.identifier else 0
    return number if queue.last_ack <= number <= last else None


def _of(
    numbers: SequenceProgress, queue: OutgoingStatus | None = None, status: NodeStatus | None = None
) -> dict[str, Any]:
    resend = ""
    if queue is not None and status is not None and queue.unacked and queue.resend_at_ms is not None:
        left_s = max(0.0, (queue.resend_at_ms - status.uptime_ms) / 1_000)
        resend = f"sent again in {duration(left_s)}, the {_ordinal(queue.resend_attempt + 1)} time"
    return {
        "confirmed": numbers.confirmed,
        "accepted": numbers.accepted,
        "last": numbers.last,
        "missing": numbers.missing,
        "held": numbers.held,
        "resend": resend,
        "spoken": spoken(numbers),
        "strip": as_json(strip(numbers)),
        "narrow": as_json(strip(numbers, NARROW)),
    }


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def totals(
    topology: Topology, nodes: Iterable[Mapping[str, Any]], statuses: Mapping[str, NodeStatus]
) -> dict[str, Any]:
    """Return the totals over all nodes."""
    running = [node for node in nodes if node["running"]]
    names = ("waiting", "kept", "held", "resent", "duplicates", "refused", "expired")
    return {name: sum(node[name] for node in running) for name in names} | {
        "outgoing": on_the_way(topology, statuses.values()),
        "in_s": sum(node["in_s"] for node in running),
    }


def on_the_way(topology: Topology, statuses: Iterable[NodeStatus]) -> int:
    """Return how many messages are on their way, each counted once.

    Until its OrderAck arrives, a transactional message waits at its source, even if it was sent and also waits at the
    next node.
    """
    found, sent, passed = 0, Counter[str](), Counter[str]()
    for status in statuses:
        found += status.unlisted_waiting
        for queue in status.outgoing:
            node = known_as(topology, queue.name).partition("\\")[0]
            if queue.sequence:
                found += queue.waiting
                sent[node] += queue.unacked
            else:
                passed[node] += queue.waiting
    return found + sum((passed - sent).values())
