"""A node's notes about a traced message become spans, each of which lasts while the message is moving."""

from __future__ import annotations

from typing import Final

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from mqproto.simulator.base.traces.context import sampled_in
from mqproto.simulator.base.traces.sdk import stays
from mqproto.simulator.base.traces.sdk.stays import Stays
from mqproto.simulator.client.envelope import Envelope
from mqproto.turn.effects import Note, Trace
from mqproto.turn.waypoints import Waypoint
from tests.pair import Net, at, chain, guid_of, queue
from tests.simulator.traced import Traced, events_of

PARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE: Final = Trace(PARENT)
ENVELOPE: Final = Envelope(headers={"traceparent": PARENT}).as_extension()
ORDERS, NOTES = queue("orders"), queue("notes", 17, transactional=False)


def a_chain() -> Net:
    net = chain("a", "b", "c", queues=[ORDERS, NOTES])
    for node in net.nodes.values():
        node.follow = sampled_in
    net.start()
    return net


def told(traced: Traced, node: str, *notes: Note, called: str = "") -> Stays:
    """Report each note in a batch of its own; return the `Stays` that took them."""
    taken = Stays(traced.tracer, node, guid_of(node), lambda name: called or name, lambda: 5)
    for note in notes:
        taken.take(note)
        taken.settle()
    return taken


def spans_of(net: Net, node: str) -> list[ReadableSpan]:
    """Return a node's notes as spans."""
    traced = Traced()
    told(traced, node, *net.nodes[node].notes).close()
    return traced.spans


def a_note(waypoint: Waypoint, message: str = "x\\1", /, **facts: str | int) -> Note:
    return Note(waypoint, {"message": message, **facts}, TRACE)


def test_a_message_that_goes_from_end_to_end_has_spans_at_each_node() -> None:
    net = a_chain()
    net.send("a", at("c"), "hello", transactional=True, final_ack=True, extension=ENVELOPE)
    net.send("a", at("c", 17), "hello", extension=ENVELOPE)
    net.send("a", at("c", 17), "nobody follows this")
    net.pass_ms(1_000)
    net.receive("c", "orders")
    net.receive("c", "notes")
    net.pass_ms(1_000)
    found = {name: sorted(events_of(span) for span in spans_of(net, name)) for name in "abc"}
    assert found == {
        "a": [
            ["accepted"],
            ["accepted"],
            ["final-acknowledged"],
            ["sent", "session-acknowledged"],
            ["sent", "session-acknowledged", "order-acknowledged"],
            ["stored"],
        ],
        "b": [
            *[["arrived"], ["arrived"], ["forwarded"], ["forwarded"]],
            *[["sent", "session-acknowledged"], ["sent", "session-acknowledged"], ["stored"]],
        ],
        "c": [
            *[["arrived"], ["arrived"], ["delivered", "committed"], ["delivered", "committed"]],
            *[["queued"], ["queued"], ["stored"]],
        ],
    }
    for span in (span for name in "abc" for span in spans_of(net, name)):
        assert span.kind is SpanKind.INTERNAL
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
        assert str((span.attributes or {})["messaging.message.id"]).startswith("2E2E2E61-")


def test_what_happens_in_one_batch_is_one_span_that_is_named_after_how_it_begins() -> None:
    traced = Traced()
    taken = Stays(traced.tracer, "c", guid_of("c"), lambda name: "not asked for its own", lambda: 5)
    for waypoint in (Waypoint.ARRIVED, Waypoint.QUEUED, Waypoint.STORED):
        taken.take(a_note(waypoint, queue="orders"))
    taken.settle()
    [span] = traced.spans
    assert (span.name, events_of(span)) == (r"arrived c\orders", ["arrived", "queued", "stored"])
    assert (span.attributes or {})["messaging.destination.name"] == r"c\orders"
    assert (span.start_time, span.end_time) == (5, 5)


def test_on_its_way_it_is_named_as_people_do_and_a_next_hop_is_no_destination() -> None:
    traced = Traced()
    told(traced, "a", a_note(Waypoint.ACCEPTED, queue="PRIVATE=X\\10"), called=r"c\orders")
    told(traced, "b", a_note(Waypoint.FORWARDED, queue="C"), called="c").close()
    accepted, forwarded = traced.spans
    assert (accepted.name, forwarded.name) == (r"accepted c\orders", "forwarded")
    assert dict(forwarded.events[0].attributes or {}) == {"queue": "c"}


@pytest.mark.parametrize(
    ("waypoint", "facts", "description"),
    [
        (Waypoint.REFUSED, {"class": "NACK_BAD_DST_Q"}, "refused: NACK_BAD_DST_Q"),
        (Waypoint.EXPIRED, {"class": "NACK_RECEIVE_TIMEOUT", "queue": "q"}, "expired: NACK_RECEIVE_TIMEOUT"),
        (Waypoint.NOT_KEPT, {"queue": "system$;deadxact"}, "not-kept"),
    ],
)
def test_what_ends_badly_says_so(waypoint: Waypoint, facts: dict[str, str | int], description: str) -> None:
    traced = Traced()
    told(traced, "a", a_note(waypoint, **facts))
    [span] = traced.spans
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, description)


def test_a_duplicate_does_not_end_what_is_under_way() -> None:
    traced = Traced()
    sent = a_note(Waypoint.SENT, number=1, sequence="1/1")
    again = [a_note(Waypoint.ARRIVED), a_note(Waypoint.DUPLICATE_DROPPED)]
    taken = told(traced, "a", sent, *again)
    assert traced.spans == []
    taken.close()
    [span] = traced.spans
    assert events_of(span) == ["sent", "arrived", "duplicate-dropped"]


def test_so_many_are_open_and_the_oldest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stays, "OPEN_LIMIT", 2)
    traced = Traced()
    taken = told(traced, "a", *(a_note(Waypoint.SENT, f"x\\{number}") for number in range(5)))
    assert [(span.attributes or {})["messaging.message.id"] for span in traced.spans] == [
        f"x\\{number}" for number in range(3)
    ]
    taken.close()
    assert len(traced.spans) == 5


def test_what_resends_for_ever_has_so_many_events_and_what_a_peer_writes_so_many_characters() -> None:
    traced = Traced()
    notes = [a_note(Waypoint.RESENT, peer="x" * 100_000) for _ in range(1_000)]
    told(traced, "a", *notes, a_note(Waypoint.QUEUED, queue="q" * 100_000)).close()
    [span] = traced.spans
    assert len(span.events) <= 128
    assert max(len(str(value)) for event in span.events for value in (event.attributes or {}).values()) <= 600
    assert len(span.name) <= 220


def test_beyond_the_limit_of_a_second_there_are_none_and_what_has_begun_goes_on() -> None:
    traced = Traced(per_s=1)
    notes = [a_note(Waypoint.SENT, f"x\\{number}") for number in range(100)]
    taken = told(traced, "a", *notes, a_note(Waypoint.SESSION_ACKNOWLEDGED, "x\\0"))
    assert [events_of(span) for span in traced.spans] == [["sent", "session-acknowledged"]]
    taken.close()
    assert len(traced.spans) == 1
    assert [event for event, _ in traced.lines] == ["traces-limited"]


def test_other_notes_are_none_of_its_business() -> None:
    traced = Traced()
    told(traced, "a", Note("session-open", {"peer": "x"}), Note(Waypoint.SENT, {"message": "x\\1"})).close()
    told(traced, "a", Note("something-else", {"message": "x\\1"}, TRACE)).close()
    assert traced.spans == []
