"""The tables of messages: what became of each, and each of its hops."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from captures.pipeline.stages.schema import FLAG, INTEGER, INTEGERS, PLACE, SHORT, TEXT, TEXTS

HOPS: Final = pa.schema(
    [
        ("message", TEXT),
        ("position", SHORT),
        ("from_key", TEXT),
        ("to_key", TEXT),
        ("from_label", TEXT),
        ("to_label", TEXT),
        ("first_ns", INTEGER),
        ("last_ns", INTEGER),
        ("waited_ns", INTEGER),
        ("waited_uncertainty_ns", INTEGER),
        ("acknowledged_ns", INTEGER),
        ("numbered", FLAG),
        ("hop_count", SHORT),
        ("copies", INTEGER),
        ("places", SHORT),
        *PLACE,
    ]
)
"""A message of an application on one hop. Times are by the reference clock; the place is its first packet's.

    position: 1 for the first hop, by hop count and time.
    first_ns, last_ns: when it first crossed, and last. acknowledged_ns: when its receiver first answered for it.
    numbered: whether its number on its session was known each time, so that an answer to it would be known for one.
    waited_ns: since it had first come to the queue manager that it leaves by this hop; null of the first hop.
    waited_uncertainty_ns: how uncertain the clocks make that: 0 where one point saw both, null where nobody knows.
    copies: how often it crossed, as the capture point that saw most has it. places: how many capture points saw it.
"""

HISTORIES: Final = pa.schema(
    [
        ("message", TEXT),
        ("source_manager", TEXT),
        ("destination_manager", TEXT),
        ("queue", TEXT),
        ("delivery", TEXT),
        ("sequence", TEXT),
        ("sequence_number", INTEGER),
        ("label", TEXT),
        ("body_bytes", INTEGER),
        ("sent_time_s", INTEGER),
        ("first_ns", INTEGER),
        ("last_ns", INTEGER),
        ("route", TEXTS),
        ("hops", SHORT),
        ("hop_ns", INTEGERS),
        ("resends", INTEGER),
        ("arrived_ns", INTEGER),
        ("latency_ns", INTEGER),
        ("latency_uncertainty_ns", INTEGER),
        ("order_acked_ns", INTEGER),
        ("order_ack_at_source", FLAG),
        ("covered_ns", INTEGER),
        ("final_class", TEXT),
        ("final_ns", INTEGER),
        ("administration", TEXTS),
        ("administration_ns", INTEGERS),
        ("outcome", TEXT),
        ("reason", TEXT),
        ("whereabouts", TEXT),
        ("complete", FLAG),
        *PLACE,
    ]
)
"""What became of a message of an application. Times are by the reference clock; the place is its first packet's.

    route: the queue managers that it crossed, from the first one seen.
    hops: how many. hop_ns: when it first crossed each.
    resends: copies beyond the first, over all hops.
    arrived_ns: when it first crossed to its destination; latency_ns: since it was first seen.
    latency_uncertainty_ns: how uncertain the clocks make that: 0 where one point saw both, null where nobody knows.
    order_acked_ns: when an OrderAck for it was first seen, at its source if captures show that: order_ack_at_source.
    covered_ns: when the positive FinalAck of a later message of its sequence was seen, which says that this one came
        too; where no OrderAck says so.
    final_class, final_ns: of the first FinalAck for it. administration: the classes of administration acknowledgments.
    outcome: one of `histories.Outcome`.
    reason: why it is not known, one of `ways.Lack` or that nobody knows who is at its end; else null.
    whereabouts: the queue manager that has it, or the hop that it is on; where it was last seen, if that is not known.
    complete: false of a message with more packets than are looked at.
"""

SCHEMAS: Final = {"hops": HOPS, "histories": HISTORIES}
TOLD: Final = {
    "hops": (
        "position",
        "first_ns",
        "last_ns",
        "waited_ns",
        "waited_uncertainty_ns",
        "acknowledged_ns",
        "numbered",
        "copies",
        "places",
    ),
    "histories": (
        "first_ns",
        "last_ns",
        "route",
        "hops",
        "hop_ns",
        "resends",
        "arrived_ns",
        "latency_ns",
        "latency_uncertainty_ns",
        "order_acked_ns",
        "order_ack_at_source",
        "covered_ns",
        "final_class",
        "final_ns",
        "administration",
        "administration_ns",
        "outcome",
        "reason",
        "whereabouts",
        "complete",
    ),
}
"""The columns that `histories` makes; all others are the first packet's."""
