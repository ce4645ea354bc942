"""Report messages: they tell a trace queue where a traced message arrives and leaves."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from mqproto.base.moment import Moment
from mqproto.manager.outcomes import report_label
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.session import Remote
from mqproto.wire import NULL_GUID, Guid, MessageClass, UserMessage, encode_packet, guid_text
from tests.examples import a_debug_header, a_user_message
from tests.observing import arrive, bodies, brought, kept, messages, publish
from tests.pair import Net, at, chain, guid_of, queue

NOTES, ORDERS = queue("notes", 17, transactional=False), queue("orders")
TRACED: dict[str, Any] = {"trace_queue": f"PUBLIC={guid_text(guid_of('trace'))}"}

# The ABNF of [MS-MQQB] 3.1.5.8.9, rule by rule.
GUID = "[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}"
DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
DATE = rf"{DAY},{MONTH} \d\d \d\d"
TIME_DATE = rf"\d\d:\d\d(?::\d\d)? (?:AM|PM) {DATE}"
LABEL = re.compile(
    rf"(?P<qm_id>[0-9A-F]{{4}}):(?P<message_id>[0-9A-F]{{8}}):(?P<hops>[0-9A-F]{{2}}) "
    rf"received by (?P<computer>{GUID}) at (?P<at>{TIME_DATE})"
)
RECEIVED = re.compile(
    "<MESSAGE ID>(?P<message_id>[0-9A-F]{8})</MESSAGE ID>\r\n<TARGET QUEUE>(?P<queue>[^<]*)</TARGET QUEUE>\r\n"
)
SENT = re.compile(
    RECEIVED.pattern
    + "<NEXT HOP>(?P<next_hop>[^<]*)</NEXT HOP>\r\n<HOP COUNT>(?P<hops>[0-9A-F]{2}) </HOP COUNT>\r\n"
)


def a_traced_chain(*hosted: QueueDeclaration) -> Net:
    """Return a net of three nodes; the one in the middle has the trace queue."""
    net = chain("a", "b", "c", queues=[NOTES, ORDERS])
    net.nodes["b"].queues = (*hosted, QueueDeclaration("trace", 9, public=guid_of("trace")))
    publish(net, {"trace": "b"})
    return net


def reports(net: Net, at: str = "b") -> list[tuple[str, str]]:
    """Return the label and body of each report in the trace queue."""
    return [
        (found.properties.label or "", found.properties.message_body.decode("utf-16-le"))
        for found in kept(net, at, "trace")
    ]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.9")
@pytest.mark.spec("[MS-MQQB] 3.1.7.1.7")
@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_is_reported_by_each_queue_manager_that_it_leaves_or_comes_to(transactional: bool) -> None:
    net = a_traced_chain()
    net.addresses["b"] = "10.0.0.2"
    destination = at("c", 16 if transactional else 17)
    net.send("a", destination, "x", transactional=transactional, **TRACED)
    net.pass_ms(1_000)
    found = [(LABEL.fullmatch(label), body) for label, body in reports(net)]
    assert len(found) == 4
    source = guid_text(guid_of("a")).upper()
    seen = []
    for label, body in found:
        assert label is not None, reports(net)
        assert (label["qm_id"], label["message_id"], label["computer"]) == (source[:4], "00000001", source)
        assert label["at"] == "22:13:20 PM Tue,Nov 14 23"
        told = SENT.fullmatch(body) or RECEIVED.fullmatch(body)
        assert told is not None
        assert (told["message_id"], told["queue"]) == ("00000001", destination.name)
        seen.append((label["hops"], told.groupdict().get("next_hop"), told.groupdict().get("hops")))
    assert Counter(seen) == {("00", "10.0.0.2", "00"): 1, ("01", "c", "01"): 1, ("01", None, None): 2}


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.9")
def test_a_report_is_an_express_message_of_its_own_class_and_is_not_traced() -> None:
    net = a_traced_chain()
    net.send("a", at("c", 17), "x", recoverable=True, priority=7, **TRACED)
    net.pass_ms(1_000)
    for report in [*kept(net, "b", "trace"), *messages(net, "a", "b")[1:]]:
        assert report.properties.message_class == MessageClass.REPORT
        assert not report.user.recoverable
        assert report.debug is None
        assert not report.base.trace
        assert report.user.destination_queue == guid_of("trace")
    assert len(messages(net, "a", "b")) == 2


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.9")
@pytest.mark.parametrize("known", [False, True], ids=["unknown", "refuses reports"])
def test_a_message_is_delivered_whatever_becomes_of_its_reports(known: bool) -> None:
    net = chain("a", "b", "c", queues=[NOTES])
    net.nodes["b"].queues = (QueueDeclaration("trace", 9, transactional=True, public=guid_of("trace")),)
    publish(net, {"trace": "b"} if known else {})
    net.send("a", at("c", 17), "x", **TRACED)
    net.pass_ms(1_000)
    assert net.receive("c", "notes") == [b"x"]
    assert bodies(net, "b", "trace") == []
    assert len(messages(net, "a", "b")) == 1 + known


@pytest.mark.spec("[MS-MQMQ] 2.2.20.8")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.9")
@pytest.mark.parametrize(("trace", "named"), [(True, None), (False, guid_of("trace"))])
def test_a_header_without_a_queue_or_without_the_bit_asks_for_no_report(
    trace: bool, named: Guid | None
) -> None:
    net = a_traced_chain()
    message = a_user_message(source=guid_of("a"), destination_manager=guid_of("c"))
    message.base.trace, message.base.debug_header = trace, True
    message.debug = a_debug_header(flags=named is not None, queue_identifier=named)
    arrive(net, "b", message)
    net.pass_ms(1_000)
    [passed] = kept(net, "c", "notes")
    assert passed.debug == message.debug
    assert reports(net) == []


@pytest.mark.spec("[MS-MQQB] 3.1.7.1.7")
def test_each_time_that_a_message_is_sent_is_reported() -> None:
    net = chain("a", "c", queues=[ORDERS])
    net.nodes["a"].queues = (QueueDeclaration("trace", 9, public=guid_of("trace")),)
    publish(net, {"trace": "a"})
    net.send("a", at("c"), "x", transactional=True, **TRACED)
    net.run()
    net.kill("c")  # It has the message, and the OrderAck is not sent.
    net.start("c")
    net.pass_ms(60_000)
    sent = [message for message in messages(net, "a", "c") if message.transaction is not None]
    assert len(sent) == 2
    assert len([body for _, body in reports(net, "a") if SENT.fullmatch(body)]) == 2
    assert len([body for _, body in reports(net, "a") if RECEIVED.fullmatch(body)]) == 2


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.9")
@pytest.mark.parametrize(
    ("utc_s", "shown"),
    [
        (0, "00:00:00 AM Thu,Jan 01 70"),
        (43_199, "11:59:59 AM Thu,Jan 01 70"),
        (43_200, "12:00:00 PM Thu,Jan 01 70"),
        (951_868_799, "23:59:59 PM Tue,Feb 29 00"),
        (2**32 - 1, "06:28:15 AM Sun,Feb 07 06"),
    ],
)
def test_a_label_tells_the_time_in_the_words_of_the_abnf_whatever_the_locale(utc_s: int, shown: str) -> None:
    message: UserMessage = a_user_message(message_id=0xABCDEF01)
    message.user.hop_count = 29
    label = report_label(message, Moment(0, utc_s))
    assert LABEL.fullmatch(label)
    assert label.endswith(f" at {shown}")
    assert ":ABCDEF01:1D " in label


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.9")
@pytest.mark.parametrize(("name", "known", "targets"), [("q", True, [""]), ("r", True, []), ("q", False, [])])
def test_only_what_is_taken_from_a_neighbour_is_reported(name: str, known: bool, targets: list[str]) -> None:
    net = a_traced_chain(QueueDeclaration("q", 18, strangers=True))
    there: dict[str, Any] = {"destination_manager": NULL_GUID, "destination": rf"TCP:no address\{name}"}
    message = a_user_message(source=guid_of("a"), trace_queue=guid_of("trace"), **there)
    brought(net, "b", encode_packet(message), Remote("a", guid_of("a"), known))
    net.run()
    found = [RECEIVED.fullmatch(body) for _, body in reports(net)]
    assert [one["queue"] for one in found if one] == targets, "what has no format name is shown as empty"
