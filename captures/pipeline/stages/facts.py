"""Turns rows of packets into the facts that the rules of `mqproto.captures.decode` read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from mqproto.captures.decode.facts import (
    NOT_KNOWN,
    NOT_SAID,
    Acknowledgment,
    Crossing,
    Hop,
    NumberedMessage,
    SessionFacts,
)
from mqproto.captures.decode.row import EXPRESS, NOT_EXPRESS, TRANSACTIONAL
from mqproto.captures.decode.sessions.half import last_loss
from mqproto.captures.decode.sight import Kind
from mqproto.captures.decode.ways import Hole, Sending, Talk
from mqproto.captures.net.direction import Ending
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.tables.lists import identifier_of, key_of, mapped, records, values
from mqproto.wire import MessageClass, SessionHeader, guid_from_text
from mqproto.wire.layouts.base import INFINITE

Losses: TypeAlias = dict[tuple[str, int, int, bool], list[int]]
"""The packets before which the capture lacks bytes that may have been messages.

The keys are the series, the connection, the interface, and whether the client sent these packets; see
mqproto.captures.decode.sessions.half. Captures without losses have no entries.
"""
MAY_BE_TRANSACTIONAL: Final = (TRANSACTIONAL, NOT_EXPRESS)
"""The values of `delivery` that a transactional message may have."""
HEADER: Final = (
    *("ack_number", "saved_first", "saved_flags", "sent_count", "recoverable_sent_count"),
    *("window_size",),
)
"""The fields of a SessionHeader or a SessionAck."""
SESSION_COLUMNS: Final = (
    *("series", "row_id", "number", "time_ns", "connection", "interface", "source_address"),
    *("source_port", "destination_address", "destination_port", "kind", "missing_bytes"),
    *("skipped_bytes", "delivery"),
    *HEADER,
    *("client", "server", "refused", "recoverable_ack_timeout_ms", "ack_timeout_ms", "position"),
    *("size_bytes", "ahead", "cut_bytes", "snapped_bytes", "opened"),
)
"""The columns of packets that are needed to judge sessions."""


def endpoints(batch: pa.RecordBatch, end: str) -> list[Endpoint]:
    """Return the address and port of each packet's source or destination, whichever `end` names."""
    known: dict[tuple[str, int], Endpoint] = {}
    found = []
    for pair in zip(values(batch, f"{end}_address"), values(batch, f"{end}_port"), strict=True):
        endpoint = known.get(pair)
        if endpoint is None:
            endpoint = known[pair] = Endpoint(*pair)
        found.append(endpoint)
    return found


def session_facts(batch: pa.RecordBatch) -> Iterator[SessionFacts]:
    """Yield the fields of packets that the rules of sessions need.

    A Ping gives an item too, but has no session.
    """
    return records(
        SessionFacts,
        batch,
        source=endpoints(batch, "source"),
        destination=endpoints(batch, "destination"),
        kind=mapped(batch, "kind", Kind),
        recoverable=mapped(batch, "delivery", EXPRESS.__ne__),
        header=_headers(batch),
        client=mapped(batch, "client", guid_from_text),
        server=mapped(batch, "server", guid_from_text),
        refused=(refused is True for refused in values(batch, "refused")),
        timeouts_ms=_timeouts_ms(batch),
        window=(window or 0 for window in values(batch, "window_size")),
    )


CROSSING_COLUMNS: Final = (
    *("series", "row_id", "number", "interface", "connection", "time_ns", "source_manager"),
    *("message_id", "hop_count", "delivery", "previous_number", "digest", "encrypted"),
    *("sent_time_s", "time_to_reach_queue_s", "from_key", "to_key", "from_client"),
    *("session_number", "acknowledged_by", "saved_by", "destination_manager", "size_bytes"),
    *("frame", "file"),
)
"""The columns needed to judge intermediates, from UserMessages joined with their relations."""


class KnownFate(NamedTuple):
    """The outcome of a message on its connection, as read from rows."""

    acknowledged_by: int | None
    saved_by: int | None
    numbered: bool


def crossings(batch: pa.RecordBatch) -> Iterator[Crossing]:
    """Yield the crossings of UserMessages."""
    deliveries = values(batch, "delivery")
    numbered = (number is not None for number in values(batch, "session_number"))
    return records(
        Crossing,
        batch,
        key=message_keys(batch),
        hop=hops(batch),
        recoverable=(delivery != EXPRESS for delivery in deliveries),
        previous_number=_previous_numbers(batch, deliveries),
        encrypted=(cipher is not None for cipher in values(batch, "encrypted")),
        sent_s=values(batch, "sent_time_s"),
        expires_s=_expiries_s(batch, deliveries),
        fate=records(KnownFate, batch, numbered=numbered),
        towards=mapped(batch, "destination_manager", guid_from_text),
    )


NUMBERED_COLUMNS: Final = (
    *("series", "row_id", "number", "interface", "connection", "time_ns", "source_manager"),
    *("message_id", "destination_manager", "queue", "sequence", "sequence_number"),
    *("previous_number", "sent_time_s", "from_key", "to_key", "from_client"),
)
ACKNOWLEDGMENT_COLUMNS: Final = (
    *NUMBERED_COLUMNS,
    *("kind", "message_class", "ack_sequence", "ack_sequence_number", "ack_previous_number"),
    *("ack_message", "ahead"),
)
"""The columns needed to judge sequences, from transactional messages, OrderAcks and FinalAcks joined with their
relations.
"""


def numbered_messages(batch: pa.RecordBatch, losses: Losses) -> Iterator[NumberedMessage]:
    """Yield the transactional messages, each with its hop."""
    towards = zip(mapped(batch, "destination_manager", guid_from_text), values(batch, "queue"), strict=True)
    return records(
        NumberedMessage,
        batch,
        key=message_keys(batch),
        hop=hops(batch),
        lost=last_losses(batch, losses),
        towards=towards,
        identifier=mapped(batch, "sequence", identifier_of),
        sent_s=values(batch, "sent_time_s"),
    )


def acknowledgments(batch: pa.RecordBatch) -> Iterator[Acknowledgment]:
    """Yield the OrderAcks and FinalAcks, each with its hop."""
    return records(
        Acknowledgment,
        batch,
        key=message_keys(batch),
        hop=hops(batch),
        towards=mapped(batch, "destination_manager", guid_from_text),
        identifier=mapped(batch, "ack_sequence", identifier_of),
        sequence_number=values(batch, "ack_sequence_number"),
        previous_number=values(batch, "ack_previous_number"),
        positive=(
            message_class == MessageClass.ACK_RECEIVE for message_class in values(batch, "message_class")
        ),
    )


def message_keys(batch: pa.RecordBatch) -> Iterator[Any]:
    """Yield the keys that identify the messages."""
    return zip(mapped(batch, "source_manager", guid_from_text), values(batch, "message_id"), strict=True)


def hops(batch: pa.RecordBatch) -> list[Any]:
    """Return the pair of queue managers between which each packet went; equal pairs are the same object."""
    known: dict[Hop, Hop] = {}
    pairs: Iterator[Any] = zip(
        mapped(batch, "from_key", key_of), mapped(batch, "to_key", key_of), strict=True
    )
    return [known.setdefault(pair, pair) for pair in pairs]


def losses_of(sessions: pa.RecordBatch) -> Losses:
    """Return those losses of sessions that later stages need."""
    columns = ("series", "connection", "interface", "client_losses", "server_losses")
    return {
        (series, connection, interface, from_client): packets.tolist()
        for series, connection, interface, *both in zip(
            *(values(sessions, name) for name in columns), strict=True
        )
        for from_client, packets in zip((True, False), both, strict=True)
        if packets is not None and len(packets)
    }


def talks_of(sessions: pa.RecordBatch) -> Iterator[tuple[str, Talk]]:
    """Yield the connections of sessions, each with its series.

    They are used to find the ways between queue managers.
    """
    columns = "series client_key server_key connection interface first_ns last_ns begun skew_ns"
    rows = zip(*(values(sessions, name) for name in columns.split()), strict=True)
    sendings = zip(_sendings(sessions, "client"), _sendings(sessions, "server"), strict=True)
    for row, (client, server) in zip(rows, sendings, strict=True):
        series, one, other, connection, interface, first_ns, last_ns, begun, skew_ns = row
        hop = (key_of(one), key_of(other))
        place = connection, interface
        talk = Talk(hop, place, first_ns, last_ns, begun, client, server, skew_ns=skew_ns)
        yield series, talk


def _sendings(sessions: pa.RecordBatch, end: str) -> Iterator[Sending]:
    columns = (
        f"{end}_{name}"
        for name in (
            "last_ns",
            "losses",
            "lost_since_ns",
            "lost_until_ns",
            "lost_bytes",
            "lost_recoverable_bytes",
            "snapped",
            "rest_bytes",
            "rest_came_bytes",
            "ending",
        )
    )
    for last_ns, *lost, snapped, rest_bytes, came_bytes, ending in zip(
        *(values(sessions, name) for name in columns), strict=True
    ):
        holes = [Hole(*each) for each in zip(*(each.tolist() for each in lost), strict=True)]
        yield Sending(last_ns, holes, snapped, rest_bytes, came_bytes, ending != Ending.OPEN.value)


def last_losses(batch: pa.RecordBatch, losses: Losses) -> list[int | None]:
    """Return, for each packet, the last loss before it in its direction.

    A loss is given by the packet before which the capture lacks bytes; that may be the packet itself. None means no
    loss.
    """
    if not losses:
        return [None] * batch.num_rows
    columns = ("number", "series", "connection", "interface", "from_client")
    return [
        last_loss(losses.get(key), number)
        for number, *way in zip(*(values(batch, name) for name in columns), strict=True)
        for key in [tuple(way)]
    ]


def _previous_numbers(batch: pa.RecordBatch, deliveries: list[str]) -> Iterator[int | None]:
    for delivery, number in zip(deliveries, values(batch, "previous_number"), strict=True):
        if delivery == NOT_EXPRESS:
            yield NOT_SAID
        else:
            yield NOT_KNOWN if number is None and delivery == TRANSACTIONAL else number


def _expiries_s(batch: pa.RecordBatch, deliveries: list[str]) -> Iterator[int | None]:
    limits_s = values(batch, "time_to_reach_queue_s")
    for delivery, sent_s, limit_s in zip(deliveries, values(batch, "sent_time_s"), limits_s, strict=True):
        yield None if limit_s == INFINITE or delivery in MAY_BE_TRANSACTIONAL else sent_s + limit_s


def _headers(batch: pa.RecordBatch) -> Iterator[SessionHeader | None]:
    """Yield the SessionHeaders, without their reserved bytes."""
    for fields in zip(*(values(batch, name) for name in HEADER), strict=True):
        yield None if fields[0] is None else SessionHeader(*fields)


def _timeouts_ms(batch: pa.RecordBatch) -> Iterator[tuple[int, int] | None]:
    saving, waiting = values(batch, "recoverable_ack_timeout_ms"), values(batch, "ack_timeout_ms")
    for pair in zip(saving, waiting, strict=True):
        yield None if pair[0] is None else pair
