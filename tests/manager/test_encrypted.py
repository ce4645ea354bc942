"""Messages with an encrypted body at a destination that has no key."""

from __future__ import annotations

from typing import Any, Final

import pytest

from mqproto.base.configuration import Settings
from mqproto.base.errors import UsageError
from mqproto.manager.deadletters import draft_of
from mqproto.messages.drafts import REPORT_NO_ARRIVAL
from mqproto.wire import NULL_GUID, FinalAck, FinalAckBody, MessageClass, UserMessage, encode_packet
from mqproto.wire.layouts.security import security_header
from tests.examples import a_transaction_header, a_user_message
from tests.observing import (
    DEADLETTER,
    DEADXACT,
    JOURNAL,
    administration,
    arrive,
    bodies,
    ended,
    final_acks,
    messages,
    packets,
)
from tests.pair import Net, at, chain, guid_of, queue

ADMIN, NOTES = queue("admin", 5, transactional=False), queue("notes", 17, transactional=False)
ORDERS = queue("orders")
EVERYWHERE: Final = (DEADLETTER, DEADXACT, JOURNAL, "notes", "orders")

SECURITY: Final = bytes.fromhex("a000 0000 0800 0000 00000000 00000000") + b"a secret"
"""A SecurityHeader, byte by byte: EB and AI are set in its flags; its only optional part is a key of 8 bytes."""


def a_chain(settings: Settings | None = None) -> Net:
    net = chain("a", "b", "c", queues=[ORDERS, NOTES], settings=settings)
    net.nodes["a"].queues = (ADMIN,)
    net.start("a")
    return net


def encrypted(number: int = 0, **changes: Any) -> UserMessage:
    """Return a message from `a` to `c` whose body is encrypted; transactional if it has a number."""
    values: dict[str, Any] = {
        "source": guid_of("a"),
        "destination_manager": guid_of("c"),
        "destination": 16 if number else 17,
        "message_id": number or 1,
        "body": b"\x8f\x00\xd1\x77",
        "journal_negative": True,
        "journal_positive": True,
        "admin_queue": 5,
        "acknowledgments": REPORT_NO_ARRIVAL,
    }
    message = a_user_message(**values | changes)
    if number:
        message = clear(number, **values | changes)
    message.user.has_security = True
    message.security = security_header.decode(SECURITY)
    assert message.security.body_encrypted
    assert SECURITY in encode_packet(message)
    return message


def clear(number: int, **changes: Any) -> UserMessage:
    """Return a transactional message from `a` to `c` that anybody can read."""
    values: dict[str, Any] = {
        "source": guid_of("a"),
        "destination_manager": guid_of("c"),
        "destination": 16,
        "message_id": number,
        "body": b"%d" % number,
        "transaction": a_transaction_header(
            tx_sequence_number=number, previous_tx_sequence_number=number - 1
        ),
    }
    return a_user_message(**values | changes)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.spec("[MS-MQQB] 3.1.7.15")
@pytest.mark.parametrize("insecure", [False, True])
@pytest.mark.parametrize("recoverable", [False, True])
@pytest.mark.parametrize("direct", [False, True])
def test_it_is_in_no_queue_and_its_sender_is_told_if_insecure_nacks_are_sent(
    insecure: bool, recoverable: bool, direct: bool
) -> None:
    net = a_chain(Settings(send_insecure_nacks=insecure))
    there: dict[str, Any] = {}
    if direct:
        there = {"destination_manager": NULL_GUID, "destination": r"TCP:10.0.0.3\private$\notes"}
    arrive(net, "c", encrypted(recoverable=recoverable, **there), peer="b")
    net.pass_ms(2_000)
    assert [bodies(net, "c", name) for name in EVERYWHERE] == [[]] * len(EVERYWHERE)
    assert administration(net, "a") == [MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER] * insecure
    assert bodies(net, "a", "admin") == [b""] * insecure, "its body does not come back"
    [note] = [note for note in net.nodes["c"].notes if note.name == "message-refused"]
    assert (note.facts["reason"], note.facts["queue"]) == (
        "NACK_UNSUPPORTED_CRYPTO_PROVIDER",
        there.get("destination", "17"),
    )


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.3")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize("order", [(1, 2, 3), (2, 1, 3), (3, 2, 1), (2, 3, 2, 1, 2)])
def test_a_transactional_one_is_refused_by_one_final_ack_when_its_turn_has_come(
    order: tuple[int, ...],
) -> None:
    """Message 2 is encrypted.

    It does not hold up later messages, and nobody reports anything more about its copies.
    """
    net = a_chain()
    for number in order:
        arrive(net, "c", encrypted(2) if number == 2 else clear(number), peer="b")
    net.pass_ms(2_000)
    assert final_acks(net, "c", "b") == [MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER]
    assert [bodies(net, "c", name) for name in EVERYWHERE] == [[], [], [], [], [b"1", b"3"]]
    assert administration(net, "a") == []


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_a_sender_keeps_what_was_refused_so_as_a_dead_letter() -> None:
    net = a_chain()
    net.kill("c")
    ordinal = net.send("a", at("c"), "x", transactional=True, journal_negative=True)
    net.run()
    [sent] = messages(net, "a", "b")
    assert sent.transaction is not None
    body = FinalAckBody(sent.transaction.tx_sequence_id, 1, 0, guid_of("a"), ordinal)
    refusal = FinalAck(
        source=guid_of("c"),
        destination_manager=guid_of("a"),
        destination=4,
        message_id=1,
        sent_time_s=0,
        message_class=MessageClass.NACK_BAD_ENCRYPTION,
        body=body,
    ).message()
    arrive(net, "a", refusal, peer="b")
    assert ended(net, "a", DEADXACT) == [(MessageClass.NACK_BAD_ENCRYPTION, b"x")]


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_an_intermediate_passes_it_on_as_it_came() -> None:
    net = a_chain()
    message = encrypted(1)
    arrive(net, "b", message)
    assert message.security is not None
    sent = [packet for packet in packets(net, "b", "c") if SECURITY in packet]
    message.user.hop_count = 1
    assert sent == [encode_packet(message)]


def test_a_dead_letter_that_is_encrypted_is_not_sent_back_as_if_it_were_not() -> None:
    with pytest.raises(UsageError, match=r"its body is encrypted, and who receives it would not know"):
        draft_of(encrypted())
    net = a_chain()
    net.blocked.add(frozenset("bc"))
    arrive(net, "b", encrypted(time_to_reach_queue_s=2, sent_time_s=net.now.utc_s))
    net.pass_ms(5_000)
    assert bodies(net, "b", DEADLETTER) == [b"\x8f\x00\xd1\x77"]
    assert net.nodes["b"].up.send_back(DEADLETTER, None, net.now) == 0
    assert bodies(net, "b", DEADLETTER) == [b"\x8f\x00\xd1\x77"]
