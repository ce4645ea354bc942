"""The tables of messages: one for their outcomes and one for their hops."""

from __future__ import annotations

from typing import Final

from mqproto.captures.pipeline.tables.schemas import messages

HOPS: Final = messages.HOPS.schema
HISTORIES: Final = messages.HISTORIES.schema
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
"""The columns that `histories` makes, keyed by table; all others are copied from the first packet."""
