"""Recounts the totals that a queue manager keeps so that it does not have to count every time."""

from __future__ import annotations

from collections.abc import Iterator

from mqproto.manager.parts import Parts
from mqproto.simulator.world.oracle.watched import WatchedNode
from mqproto.turn.effects import POSITION_BITS


def sums_are_true(node: WatchedNode) -> str | None:
    """Each total that the node keeps equals a fresh count."""
    core = node.core
    for what, kept, counted in _sums(core.inspect(), node) if core is not None else ():
        if kept != counted:
            return f"{node.name} has {kept} for {what}, and it is {counted}"
    return None


def _sums(inner: Parts, node: WatchedNode) -> Iterator[tuple[str, object, object]]:
    arrivals, sequences = inner.arrivals, list(inner.incoming)
    yield "incoming sequences", len(inner.incoming), len(sequences)
    for one in sequences:
        yield (
            f"bytes held of {one.name!r}",
            one.held_bytes,
            sum(len(held.packet) for held in one._held.values()),
        )
        yield f"the order of what is held of {one.name!r}", one._order, sorted(one._held)
    strangers = [one for one in sequences if one in arrivals.in_sequence.places]
    yield "places of strangers", len(arrivals.in_sequence.places), len(strangers)
    waiting = sum(len(run.packets[0]) for runs in arrivals._looked_up.values() for run, _ in runs)
    yield "bytes that wait for the store", arrivals.looked_up_bytes, waiting
    for history in inner.histories:
        yield "identifiers", len(history), sum(len(sender.arrivals) for sender in history._senders.values())
    for queue in (*inner.outbound, *(lane for local in inner.queues for lane in local.lanes)):
        yield (
            f"bytes in memory of {queue.name}",
            queue.window._bytes,
            sum(len(m.packet) for m in queue.window),
        )
    for session in inner.transports.sessions.values():
        sent = {*session.data.unacknowledged, *session.data.unsaved}
        in_flight = sum(len(entry.packet) for entry in sent if not entry.done)
        yield "bytes in flight", session.data.in_flight_bytes, in_flight
    writes = inner.desk.writes.later
    coming = {row.key: row for row in writes.messages}
    for local in inner.queues:
        express = [message for lane in local.lanes for message in lane.window]
        express += local.consumers.handed
        sizes_bytes = [len(message.packet) for message in express if not message.stored]
        for lane in local.lanes:
            rows = node.disk.rows(lane.queue) if lane.queue in node.disk.queues else ()
            kept = [row for row in (*rows, *writes.messages) if row.key >> POSITION_BITS == lane.queue]
            for old, new, _ in writes.moves:
                if new >> POSITION_BITS == lane.queue and (row := coming.get(old) or node.disk.row(old)):
                    kept.append(row._replace(key=new))
            sizes_bytes += [len(row.packet) for row in kept if not inner.desk.writes.removes(row.key)]
        counted = len(sizes_bytes), sum(sizes_bytes)
        yield f"messages and bytes in {local.name}", (local.count, local.size_bytes), counted
