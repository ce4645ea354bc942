"""Who sends to whom: the hops, counted from the table of every message's hops."""

from __future__ import annotations

from typing import Final

from captures.pipeline.report.facts import Hop, Routes
from captures.pipeline.report.scanning import batches, grouped, integers
from captures.pipeline.tables import Tables

HOPS_LIMIT: Final = 1_000
"""How many hops are told apart: more than queue managers have, but not than somebody can make up."""
_KEYS: Final = ("from_key", "to_key")
_COLUMNS: Final = (
    *_KEYS,
    "from_label",
    "to_label",
    "first_ns",
    "last_ns",
    "waited_ns",
    "acknowledged_ns",
    "copies",
)


def routes(tables: Tables) -> Routes:
    """All hops, those with most messages first."""
    hops: dict[tuple[str, str], Hop] = {}
    found = Routes()
    for batch in batches(tables, "hops", _COLUMNS):
        first_ns, _ = integers(batch.column("first_ns"))
        last_ns, _ = integers(batch.column("last_ns"))
        waited_ns, has_waited = integers(batch.column("waited_ns"))
        answered_ns, is_answered = integers(batch.column("acknowledged_ns"))
        copies, _ = integers(batch.column("copies"))
        for key, places in grouped(batch, _KEYS):
            hop = hops.get(key)
            if hop is None:
                if len(hops) == HOPS_LIMIT:
                    found.left_out += len(places)
                    continue
                from_label, to_label = (
                    batch.column(f"{end}_label")[int(places[0])].as_py() for end in ("from", "to")
                )
                from_key, to_key = key
                hop = hops[from_key, to_key] = Hop(from_key, to_key, from_label, to_label)
                hop.first_ns = int(first_ns[places].min())
            hop.messages += len(places)
            hop.copies += int(copies[places].sum())
            hop.first_ns = min(hop.first_ns, int(first_ns[places].min()))
            hop.last_ns = max(hop.last_ns, int(last_ns[places].max()))
            hop.waited.add(waited_ns[places][has_waited[places]])
            answered = places[is_answered[places]]
            hop.answered.add(answered_ns[answered] - first_ns[answered])
    found.hops = sorted(
        hops.values(), key=lambda hop: (-hop.messages, hop.first_ns, hop.from_key, hop.to_key)
    )
    for hop in found.hops:
        found.labels |= {hop.from_key: hop.from_label, hop.to_key: hop.to_label}
    return found


def ranks(hops: list[Hop]) -> dict[str, int]:
    """How many hops each queue manager is down the stream of messages, by their keys; 0 is where it begins.

    Those that are not connected begin at 0 again.
    """
    messages = {(hop.from_key, hop.to_key): hop.messages for hop in hops}
    neighbours: dict[str, list[tuple[str, int]]] = {}
    surplus: dict[str, int] = {}
    for hop in hops:
        there, back = hop.messages, messages.get((hop.to_key, hop.from_key), 0)
        down = 1 if there > back or (there == back and hop.from_key < hop.to_key) else -1
        neighbours.setdefault(hop.from_key, []).append((hop.to_key, down))
        neighbours.setdefault(hop.to_key, []).append((hop.from_key, -down))
        surplus[hop.from_key] = surplus.get(hop.from_key, 0) + hop.messages
        surplus[hop.to_key] = surplus.get(hop.to_key, 0) - hop.messages
    found: dict[str, int] = {}
    for start in sorted(neighbours, key=lambda key: (-surplus[key], key)):
        if start in found:
            continue
        connected = {start: 0}
        waiting = [start]
        for key in waiting:
            for other, down in neighbours[key]:
                if other not in connected:
                    connected[other] = connected[key] + down
                    waiting.append(other)
        least = min(connected.values())
        found |= {key: rank - least for key, rank in connected.items()}
    return found
