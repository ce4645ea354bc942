from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.captures.net.conversation import Side
from mqproto.captures.net.tcp import Endpoint
from mqproto.simulator.base.recorder import Recorder
from mqproto.simulator.rig.proof import Committed, Sent, compare, delays_ms, examine, percentile
from mqproto.wire import (
    Guid,
    OrderAck,
    OrderAckBody,
    SessionAck,
    SessionHeader,
    UserMessage,
    encode_packet,
    user_message,
    with_hop_counted,
    with_session_header,
)
from mqproto.wire.messages import ORDER_QUEUE

SENDER, INTERMEDIATE, DESTINATION = (Guid(name.ljust(16).encode()) for name in ("s", "i", "d"))
MANAGERS = {"127.0.0.1": SENDER, "127.0.0.2": INTERMEDIATE, "127.0.0.3": DESTINATION}


def sent(names: range) -> list[Sent]:
    return [Sent(name, hashlib.sha256(bytes(name)).digest(), float(name)) for name in names]


def received(names: list[int]) -> list[Committed]:
    return [Committed(name, hashlib.sha256(bytes(name)).digest(), name + 0.5) for name in names]


@given(st.lists(st.integers(0, 9), max_size=30))
def test_every_loss_repetition_and_disorder_is_counted(names: list[int]) -> None:
    found = compare(sent(range(10)), received(names))
    firsts = list(dict.fromkeys(names))
    assert (found.sent, found.delivered, found.lost) == (10, len(firsts), 10 - len(firsts))
    assert found.duplicated == len(names) - len(firsts)
    assert found.out_of_order == sum(name < max(firsts[:place]) for place, name in enumerate(firsts) if place)
    assert (found.broken() == []) == (names == list(range(10)))


@given(
    doubtful=st.lists(st.booleans(), min_size=10, max_size=10),
    names=st.lists(st.integers(0, 9), max_size=30),
)
def test_what_may_not_have_been_accepted_may_be_missing_but_not_come_twice_or_out_of_order(
    doubtful: list[bool], names: list[int]
) -> None:
    messages = [
        message._replace(message_id=None) if doubt else message
        for message, doubt in zip(sent(range(10)), doubtful, strict=True)
    ]
    found = compare(messages, received(names))
    certain = {name for name in range(10) if not doubtful[name]}
    assert (found.sent, found.in_doubt) == (len(certain), 10 - len(certain))
    assert (found.delivered, found.in_doubt_delivered) == (len(certain & {*names}), len({*names} - certain))
    assert found.lost == len(certain - {*names})
    without_doubt = compare(sent(range(10)), received(names))
    for count in ("duplicated", "out_of_order", "altered", "strangers"):
        assert getattr(found, count) == getattr(without_doubt, count)


def test_a_message_in_doubt_that_was_accepted_twice_is_found() -> None:
    [first, *others] = sent(range(3))
    arrived = received([0, 1, 2])
    arrived.insert(1, arrived[0]._replace(message_id=99))
    assert compare([first._replace(message_id=None), *others], arrived).strangers == 1


@pytest.mark.parametrize(
    ("names", "torn"), [([], 0), ([0, 1, 2, 3], 0), ([2, 3], 0), ([0], 1), ([0, 2, 3], 1), ([0, 3], 2)]
)
def test_a_request_in_doubt_comes_wholly_or_not_at_all(names: list[int], torn: int) -> None:
    messages = [message._replace(message_id=None, at_s=message.at_s // 2) for message in sent(range(4))]
    assert compare(messages, received(names)).torn == torn


def test_an_identifier_that_is_given_to_two_messages_is_found() -> None:
    messages = [*sent(range(3)), sent(range(3))[1]]
    assert compare(messages, received([0, 1, 2])).broken() == [
        "1 messages lost",
        "1 messages with the identifier of another",
    ]


def test_bodies_that_changed_and_messages_that_nobody_sent_are_counted() -> None:
    arrived = received([0, 1, 7])
    arrived[1] = arrived[1]._replace(digest=b"another")
    found = compare(sent(range(2)), arrived)
    assert (found.altered, found.strangers) == (1, 1)
    assert found.broken() == ["1 messages altered", "1 messages never sent"]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100), st.floats(0, 100))
def test_percentiles_are_values_that_occurred_and_rise(values: list[float], one: float, other: float) -> None:
    values.sort()
    low, high = sorted((one, other))
    assert percentile(values, low) in values
    assert percentile(values, low) <= percentile(values, high) <= values[-1]
    assert sum(value <= percentile(values, high) for value in values) >= len(values) * high / 100


def test_a_delay_is_from_sending_to_receipt() -> None:
    assert delays_ms(sent(range(3)), received([2, 0, 1, 99])) == [500.0] * 3


def message(number: int) -> UserMessage:
    return user_message(
        source=SENDER,
        destination_manager=DESTINATION,
        destination=16,
        message_id=number,
        sent_time_s=1,
        body=b"body" * number,
        recoverable=True,
    )


def capture(path: Path, *legs: tuple[str, str, list[bytes]]) -> Path:
    """Return a capture of connections: (from, to, packets that the opener sent)."""
    with path.open("wb") as file:
        recorder = Recorder(file)
        for port, (client, server, packets) in enumerate(legs, 50_000):
            connection = recorder.connection(Endpoint(client, port), Endpoint(server, 1801))
            connection.sent(Side.CLIENT, b"".join(packets))
        recorder.close()
    return path


def test_a_packet_that_passes_through_may_change_its_hop_count_and_session_header_alone(
    tmp_path: Path,
) -> None:
    came = [encode_packet(message(number)) for number in range(1, 6)]
    left = [
        with_session_header(with_hop_counted(packet), SessionHeader(user_msg_sequence_number=9))
        for packet in came
    ]
    path = capture(
        tmp_path / "x", ("127.0.0.1", "127.0.0.2", came), ("127.0.0.2", "127.0.0.3", [*left, left[0]])
    )
    count = examine(path, MANAGERS)
    assert (count.faults, count.forwarded, count.user_messages, count.riding_session_acks) == ([], 6, 11, 6)


@pytest.mark.parametrize("offset", [1, 17, 40, 56, 70, 150])
def test_any_other_change_on_the_way_is_a_fault(offset: int, tmp_path: Path) -> None:
    came = encode_packet(message(30))
    left = bytearray(with_hop_counted(came))
    left[offset] ^= 1
    path = capture(
        tmp_path / "x", ("127.0.0.1", "127.0.0.2", [came]), ("127.0.0.2", "127.0.0.3", [bytes(left)])
    )
    [fault] = examine(path, MANAGERS).faults
    assert "through 127.0.0.2" in fault


def test_a_packet_that_did_not_count_its_hop_is_a_fault(tmp_path: Path) -> None:
    came = encode_packet(message(1))
    path = capture(tmp_path / "x", ("127.0.0.1", "127.0.0.2", [came]), ("127.0.0.2", "127.0.0.3", [came]))
    assert examine(path, MANAGERS).faults == ["message 1 was altered on its way through 127.0.0.2"]


def test_acknowledgments_are_counted_where_they_arrive(tmp_path: Path) -> None:
    ack = OrderAck(
        source=DESTINATION,
        destination_manager=SENDER,
        destination=ORDER_QUEUE,
        message_id=1,
        sent_time_s=1,
        body=OrderAckBody(tx_sequence_number=3),
    ).message()
    packet = encode_packet(ack)
    path = capture(
        tmp_path / "x",
        ("127.0.0.3", "127.0.0.2", [packet, encode_packet(SessionAck(session=SessionHeader()))]),
        ("127.0.0.2", "127.0.0.1", [with_hop_counted(packet)]),
    )
    count = examine(path, MANAGERS)
    assert (count.order_acks, count.final_acks, count.session_acks, count.forwarded) == (1, 0, 1, 1)
    assert count.faults == []


def test_bytes_that_are_no_packet_are_a_fault_and_not_a_crash(tmp_path: Path) -> None:
    path = capture(tmp_path / "x", ("127.0.0.1", "127.0.0.2", [bytes(64)]))
    [fault] = examine(path, MANAGERS).faults
    assert fault.startswith("127.0.0.1:50000 > 127.0.0.2:1801: ")
    path.write_bytes(path.read_bytes()[:-5])
    first, second = examine(path, MANAGERS).faults
    assert (first, "the file ends" in second) == (fault, True)


def test_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 99) == 0
    assert all(one <= other for one, other in pairwise([percentile([1, 2, 3], p) for p in (0, 50, 100)]))
