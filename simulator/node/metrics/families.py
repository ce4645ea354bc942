"""The metrics of a node: the figures of `mqproto queues --json`, named according to Prometheus' conventions.

The names of queues and hosts are chosen by others. So they are shortened, the library escapes them, and not all are
reported. Figures whose names have become equal are added up, because Prometheus refuses a scrape that repeats a series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from operator import add
from typing import Final, NamedTuple

from prometheus_client import Metric, ProcessCollector

from mqproto.manager.status import LocalStatus, NodeStatus, OutgoingStatus
from mqproto.simulator.base.http.metrics import Histogram, counter, gauge, histogram, histograms, label_of
from mqproto.wire import MessageClass

LOCAL_LISTED: Final = 500
"""The maximum number of its own queues that a node reports one by one, starting with the fullest.
`mqproto.manager.status` has the limits for outgoing queues and sessions.
"""
CAUSES: Final = [one.name for one in MessageClass if one.name.startswith("NACK_")]
CONNECTED: Final = "connected"
PIECE: Final = 20
"""How many queues have their histograms written at a time, about 300 series in all.

Other tasks wait meanwhile.
"""


class Facts(NamedTuple):
    """Facts that a status does not contain.

    called: returns the name that people use for an outgoing queue.
    """

    node: str
    manager: str
    version: str
    called: Callable[[str], str] = str


class QueueMetric(NamedTuple):
    """One metric that each queue has: its name after `mqproto_`, its help, and how to find its value."""

    name: str
    help: str
    find: Callable[..., float | None]
    is_counter: bool = False
    join: Callable[[float, float], float] = add
    """Joins the values of two queues whose shortened names are equal."""


def age_s(utc_s: int, queue: LocalStatus) -> float | None:
    """Return the age of a queue's oldest message: 0 if there is no message, or None if only the store knows the age."""
    if not queue.waiting:
        return 0
    return None if queue.oldest_s is None else max(0, utc_s - queue.oldest_s)


def of_local(utc_s: int) -> Sequence[QueueMetric]:
    """Return the metrics of one of the node's own queues."""

    def find(name: str) -> Callable[[LocalStatus], float | None]:
        return lambda queue: getattr(queue, name)

    return (
        QueueMetric("queue_messages", "Messages in the queue.", find("waiting")),
        QueueMetric(
            "queue_unsettled_messages", "Those that consumers have and did not settle.", find("unsettled")
        ),
        QueueMetric("queue_held_messages", "Messages that wait for it behind a gap.", find("held")),
        QueueMetric("queue_bytes", "What its messages take.", find("size_bytes")),
        QueueMetric("queue_quota_bytes", "What they may take, if it has a quota.", find("quota_bytes")),
        QueueMetric("queue_consumers", "Applications that receive from it.", find("consumers")),
        QueueMetric(
            "queue_oldest_message_age_seconds",
            "How long ago its oldest message was sent, by its sender's clock; 0 if it is empty.",
            lambda queue: age_s(utc_s, queue),
            join=max,
        ),
        QueueMetric(
            "queue_messages_in_total", "Messages that came into it.", find("entered"), is_counter=True
        ),
        QueueMetric("queue_messages_out_total", "Messages that left it.", find("left"), is_counter=True),
    )


def of_outgoing(utc_s: int) -> Sequence[QueueMetric]:
    """Return the metrics of an outgoing queue."""

    def find(name: str) -> Callable[[OutgoingStatus], float | None]:
        return lambda queue: getattr(queue, name)

    return (
        QueueMetric("outgoing_messages", "Messages on their way to it.", find("waiting")),
        QueueMetric("outgoing_unsent_messages", "Those that are to be sent.", find("unsent")),
        QueueMetric(
            "outgoing_in_flight_messages", "Those that the next hop has not acknowledged.", find("in_flight")
        ),
        QueueMetric(
            "outgoing_unread_messages", "Messages there that wait for their FinalAck.", find("unread")
        ),
        QueueMetric(
            "outgoing_connected",
            "1 if there is a session with the next hop, else 0.",
            lambda queue: float(queue.state == CONNECTED),
            join=min,
        ),
        QueueMetric(
            "outgoing_failing_seconds",
            "How long there has been none though something waits; 0 if all is well.",
            lambda queue: 0 if queue.failing_since_s is None else max(0, utc_s - queue.failing_since_s),
            join=max,
        ),
        QueueMetric(
            "outgoing_resend_attempts",
            "How often in a row no OrderAck came in time.",
            find("resend_attempt"),
            join=max,
        ),
    )


def families(status: NodeStatus, facts: Facts) -> Iterator[Metric]:
    """Yield all metrics of a node."""
    yield gauge("node_info", "Which node this is.", [(facts[:3], 1)], Facts._fields[:3])
    chosen = nlargest(LOCAL_LISTED, status.local, key=lambda queue: (queue.waiting, queue.held))
    names = {queue.name for queue in chosen}
    listed = [queue for queue in status.local if queue.name in names]
    local = [(label_of(queue.name),) for queue in listed]
    yield from _each(of_local(status.utc_s), listed, local, ("queue",))
    yield from _waits(listed, local)
    outgoing = [(label_of(queue.name), label_of(facts.called(queue.name))) for queue in status.outgoing]
    yield from _each(of_outgoing(status.utc_s), status.outgoing, outgoing, ("queue", "to"))
    yield gauge(
        "unlisted_queues",
        "Queues that are not listed one by one, because there are too many.",
        [(("local",), len(status.local) - len(listed)), (("outgoing",), status.unlisted)],
        ("kind",),
    )
    waiting = sum(queue.waiting for queue in status.local) - sum(queue.waiting for queue in listed)
    yield gauge(
        "unlisted_messages",
        "Messages in them.",
        [(("local",), waiting), (("outgoing",), status.unlisted_waiting)],
        ("kind",),
    )
    yield from _sessions(status)
    yield from _counted(status)
    yield from _store(status)
    # By Prometheus' own names: process_cpu_seconds_total, process_resident_memory_bytes and so on.
    yield from ProcessCollector(registry=None).collect()


def _sessions(status: NodeStatus) -> Iterator[Metric]:
    yield gauge("sessions", "Sessions that are open.", [((), status.sessions_open)])
    windows, unacknowledged = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    acknowledged, round_trips = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for one in status.sessions:  # There may be two with one neighbour.
        peer = label_of(one.host), one.manager
        windows[peer] += one.window
        unacknowledged[peer] += one.unacknowledged
        for times, time_s in ((acknowledged, one.acknowledged_s), (round_trips, one.round_trip_s)):
            if time_s is not None:
                times[peer] = max(time_s, times.get(peer, 0))
    yield gauge(
        "session_window_messages",
        "How many messages may be sent to a neighbour before it acknowledges some.",
        windows.items(),
        ("host", "manager"),
    )
    yield gauge(
        "session_unacknowledged_messages",
        "How many of those were sent and are not acknowledged.",
        unacknowledged.items(),
        ("host", "manager"),
    )

    yield gauge(
        "session_acknowledged_seconds",
        "How long a neighbour takes to acknowledge a message, with the way and its own work, smoothed.",
        acknowledged.items(),
        ("host", "manager"),
    )
    yield gauge(
        "session_round_trip_seconds",
        "How long TCP takes to a neighbour and back, as the system measures it.",
        round_trips.items(),
        ("host", "manager"),
    )


def _counted(status: NodeStatus) -> Iterator[Metric]:
    # All causes from the start: Prometheus sees no increase when a series first appears.
    refused = [((cause,), status.refusals.get(cause, 0)) for cause in CAUSES]
    yield counter("refused_messages", "Messages refused at their destination.", refused, ("cause",))
    for name, text, count in (
        ("forwarded", "Messages and OrderAcks passed on for others.", status.forwarded),
        ("expired", "Messages whose time was over.", status.expired),
        ("damaged", "Messages that were damaged in the store.", status.damaged),
        ("duplicate", "Messages dropped because they came before.", status.duplicates),
        ("resent", "Transactional messages sent again.", status.resent),
        ("held", "Messages that came early and were held behind a gap.", status.held_ever),
        ("overflowed", "Early messages that were dropped: too many are held.", status.overflowed),
    ):
        yield counter(f"{name}_messages", text, [((), count)])

    yield histogram(
        "arrival_age_seconds",
        "How old messages were when they came into their queues, by their senders' clocks, in whole seconds.",
        Histogram(status.ages_within, status.arrived, status.ages_s),
    )


def _waits(listed: Sequence[LocalStatus], labels: Sequence[tuple[str, ...]]) -> Iterator[Metric]:
    """Yield metrics of how long messages stayed in each queue, PIECE queues at a time."""
    spreads: dict[tuple[str, ...], Histogram] = {}
    for label, queue in zip(labels, listed, strict=True):
        if queue.waited_within:
            spread = Histogram(queue.waited_within, queue.received, queue.waited_s)
            spreads[label] = _joined(spreads[label], spread) if label in spreads else spread
    told = [*spreads.items()]
    for start in range(0, max(1, len(told)), PIECE):
        yield histograms(
            "queue_wait_seconds",
            "How long messages that applications received were in the queue; journals and dead letters have none.",
            told[start : start + PIECE],
            ("queue",),
        )


def _joined(one: Histogram, other: Histogram) -> Histogram:
    within = [(bound, some + more) for (bound, some), (_, more) in zip(one.within, other.within, strict=True)]
    return Histogram(within, one.total + other.total, one.total_s + other.total_s)


def _store(status: NodeStatus) -> Iterator[Metric]:
    yield gauge("store_bytes", "What the messages in the store take.", [((), status.stored_bytes)])
    yield gauge("store_quota_bytes", "What they may take.", [((), status.quota_bytes)])
    yield gauge("store_room_bytes", "What the quota and the disk leave.", [((), room_bytes(status))])
    yield gauge("store_full", "1 if the disk is full, else 0.", [((), float(status.disk_is_full))])
    yield histogram(
        "store_commit_duration_seconds",
        "Commits, each with its one flush of the disk; the node does nothing else meanwhile.",
        Histogram(status.commits_within, status.flushes, status.commits_s),
    )


def room_bytes(status: NodeStatus) -> int:
    """Return how many more bytes the store may take, given its quota and, if it is known, the free room on the disk."""
    if status.disk_is_full:
        return 0
    left = max(0, status.quota_bytes - status.stored_bytes)
    return left if status.free_bytes is None else min(left, status.free_bytes)


def _each(
    figures: Sequence[QueueMetric],
    queues: Sequence[LocalStatus | OutgoingStatus],
    labels: Sequence[tuple[str, ...]],
    names: Sequence[str],
) -> Iterator[Metric]:
    """Yield these metrics for all queues, with these labels."""
    for figure in figures:
        values: dict[tuple[str, ...], float] = {}
        for label, value in zip(labels, map(figure.find, queues), strict=True):
            if value is not None:
                values[label] = figure.join(values[label], value) if label in values else value
        make = counter if figure.is_counter else gauge
        yield make(figure.name.removesuffix("_total"), figure.help, values.items(), names)
