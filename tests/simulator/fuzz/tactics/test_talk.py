"""The valid conversation: a queue manager accepts it, with its marks filled in."""

from __future__ import annotations

import pytest

from mqproto.simulator.fuzz.mutations import plan_of
from mqproto.simulator.fuzz.tactics.cases import Act, Case
from mqproto.simulator.fuzz.tactics.packets import IDENTITY, MESSAGES, PRESENTED, message_of
from mqproto.simulator.fuzz.tactics.talk import PeerTarget, Talk, whole_conversation
from mqproto.turn.guard import is_encrypted
from mqproto.wire import (
    NULL_GUID,
    Guid,
    PacketBuffer,
    SessionAck,
    UserMessage,
    decode_message,
    decode_packet,
    encode_packet,
    simple_blob,
)

TARGET = PeerTarget((r"TCP:127.0.0.1\private$\notes", r"TCP:127.0.0.1\private$\orders"), sent_s=1_700_000_000)


def a_talk(number: int = 5, target: PeerTarget = TARGET) -> Talk:
    return Talk(target, 3, number)


def a_conversation(number: int, target: PeerTarget = TARGET) -> Case:
    talk = a_talk(number, target)
    whole_conversation(talk, 6)
    return talk.case("valid", "")


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_kind_of_message_is_a_packet_of_its_own(kind: str) -> None:
    packet = message_of(TARGET.queues[0], kind)
    assert isinstance(decode_packet(packet), UserMessage)
    assert [message_of(TARGET.queues[0], other) for other in MESSAGES].count(packet) == 1


def test_one_kind_has_a_key_within_it_that_is_mutated_by_its_own_layout() -> None:
    message = decode_message(message_of(TARGET.queues[0], "encrypted"))
    assert message.security is not None
    assert is_encrypted(message)
    assert len(simple_blob.decode(message.security.encryption_key).encrypted_key) == 256
    names = {edit.name for edit in plan_of(encode_packet(message)).edits}
    assert any("key_algorithm" in name for name in names)


def test_a_conversation_is_whole_packets_without_marks() -> None:
    for number in range(200):
        case = a_conversation(number)
        packets = PacketBuffer().feed(case.data)
        assert b"".join(packets) == case.data
        assert case.data.count(bytes(IDENTITY)) == case.data.count(bytes(PRESENTED)) == 0
        messages = [packet for packet in map(decode_packet, packets) if isinstance(packet, UserMessage)]
        numbers = [message.user.message_id for message in messages]
        assert len(set(numbers)) == len(numbers), "each message has a number of its own"
        assert all(message.user.sent_time_s == TARGET.sent_s for message in messages)


def test_the_counts_that_it_states_are_those_of_its_messages() -> None:
    stated = 0
    for number in range(100):
        sent = recoverable = 0
        for packet in map(decode_packet, PacketBuffer().feed(a_conversation(number).data)):
            if isinstance(packet, UserMessage):
                sent, recoverable = sent + 1, recoverable + packet.user.recoverable
            header = packet.session if isinstance(packet, SessionAck | UserMessage) else None
            if header is not None:
                stated += 1
                assert (header.user_msg_sequence_number, header.recoverable_msg_seq_number) == (
                    sent,
                    recoverable,
                )
    assert stated > 50


def test_two_cases_have_no_message_in_common_and_one_case_is_made_once() -> None:
    seen: set[tuple[Guid, int]] = set()
    for number in range(600):
        for packet in map(decode_packet, PacketBuffer().feed(a_conversation(number).data)):
            if isinstance(packet, UserMessage):
                name = packet.user.source_queue_manager, packet.user.message_id
                assert name not in seen
                seen.add(name)
    assert a_conversation(7) == a_conversation(7)


def test_we_are_who_we_are_told_to_be_and_strangers_otherwise() -> None:
    known = Guid(b"a queue manager."[:16])
    for presented in (None, known):
        target = PeerTarget(TARGET.queues, NULL_GUID, presented, TARGET.sent_s)
        case = a_conversation(1, target)
        request: object = decode_packet(case.steps[0].data)
        assert getattr(request, "client_guid", None) == (presented or case.identity)


def test_at_another_time_the_same_case_is_told_by_somebody_else() -> None:
    later = PeerTarget(TARGET.queues, sent_s=TARGET.sent_s + 60)
    case, told_later = a_conversation(5), a_conversation(5, later)
    assert case.identity != told_later.identity
    assert case.renewed(told_later.identity, later.sent_s) == told_later


def test_what_is_glued_is_one_step_and_nothing_is_lost() -> None:
    apart, glued = a_talk(), a_talk()
    for talk in (apart, glued):
        if talk is glued:
            talk.glue()
        talk.greet(glued=True)
        talk.message("express", plain=True)
        talk.wait()
    assert [step.act for step in glued.case("", "").steps] == [Act.SEND, Act.AWAIT]
    assert glued.case("", "").data == apart.case("", "").data


def test_a_burst_is_one_step_whose_messages_have_numbers_of_their_own_and_are_counted() -> None:
    talk = a_talk()
    talk.greet(glued=True)
    talk.burst(
        [message_of(TARGET.queues[0], "recoverable"), message_of(TARGET.queues[0], "express")] * 300, "notes"
    )
    assert talk.counts() == [600, 300]
    [*_, step] = talk.case("", "").steps
    packets = [decode_packet(packet) for packet in PacketBuffer().feed(step.data)]
    assert step.note == "600 notes"
    assert len({packet.user.message_id for packet in packets if isinstance(packet, UserMessage)}) == 600


def test_a_mutated_step_knows_what_it_was() -> None:
    talk = a_talk()
    places = whole_conversation(talk, 3)
    talk.mutate(places[-1])
    step = talk.case("", "").steps[places[-1]]
    assert step.was != step.data
    decode_packet(step.was)
