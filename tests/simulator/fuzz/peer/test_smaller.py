"""Cases made smaller: fewer connections, steps and wrong bytes, as long as the same fault shows."""

from __future__ import annotations

import random

from hypothesis import given, strategies as st

from mqproto.simulator.fuzz.mutations import mutate
from mqproto.simulator.fuzz.peer.smaller import calm, described, edited, edits, smaller
from mqproto.simulator.fuzz.tactics.cases import Act, Case, Step
from mqproto.wire import encode_packet
from tests.examples import SENDER, SENT_S, a_user_message

PACKET = encode_packet(a_user_message())


def a_case(*steps: Step) -> Case:
    return Case("kind", "name", steps, SENDER, SENT_S)


@given(was=st.binary(max_size=40), data=st.binary(max_size=40))
def test_all_edits_made_give_what_was_made_and_none_what_was(was: bytes, data: bytes) -> None:
    found = edits(was, data)
    assert edited(was, found) == data
    assert edited(was, []) == was
    assert bool(found) == (was != data)


def test_edits_of_mutants_are_few() -> None:
    for seed in range(200):
        mutant = mutate(PACKET, random.Random(seed))
        assert edited(PACKET, edits(PACKET, mutant.data)) == mutant.data


async def test_only_the_step_and_the_byte_that_matter_are_left() -> None:
    wrong = bytearray(PACKET)
    wrong[8], wrong[40], wrong[60] = 0xAA, 0xBB, 0xCC
    case = a_case(
        *(Step(Act.SEND, connection, b"other", note="other") for connection in range(5)),
        Step(Act.AWAIT, 4),
        Step(Act.SEND, 5, bytes(wrong), note="message: three bytes", was=PACKET),
        Step(Act.AWAIT, 5),
    )

    async def still(candidate: Case) -> bool:
        return any(len(step.data) > 40 and step.data[40] == 0xBB for step in candidate.steps)

    less = await smaller(case, still, 10)
    sent = [step for step in less.steps if step.act is Act.SEND]
    assert [step.data for step in sent] == [PACKET[:40] + b"\xbb" + PACKET[41:]]
    assert less.steps[-1] == Step(Act.AWAIT, 5)
    assert described(sent[0]) == "message: bb at byte 40, in user.queue_manager_address"


async def test_when_time_is_up_the_smallest_so_far_is_kept() -> None:
    case = a_case(*(Step(Act.SEND, 0, b"other") for _ in range(9)))

    async def still(candidate: Case) -> bool:
        return True

    assert await smaller(case, still, 0) == case
    assert len((await smaller(case, still, 10)).steps) <= 1


def test_a_calm_case_awaits_what_each_packet_leads_to() -> None:
    hasty = a_case(Step(Act.SEND, 0, b"a"), Step(Act.SEND, 1, b"b"), Step(Act.WATCH), Step(Act.AWAIT, 0))
    awaited = calm(hasty)
    assert [(step.act, step.connection) for step in awaited.steps] == [
        (Act.SEND, 0),
        (Act.AWAIT, 0),
        (Act.SEND, 1),
        (Act.AWAIT, 1),
        (Act.WATCH, 0),
    ]
    assert calm(awaited) == awaited


def test_what_is_wrong_is_said_in_a_few_words() -> None:
    assert described(Step(Act.SEND, 0, b"same", note="a note", was=b"same")) == "a note"
    assert described(Step(Act.SEND, 0, PACKET[:100], note="m: cut", was=PACKET)).startswith(
        "m: nothing at byte 100, in "
    )
    assert "and 26 more" in described(
        Step(
            Act.SEND,
            0,
            bytes(range(0, 60, 1)),
            note="m",
            was=bytes(each if index % 2 else each ^ 1 for index, each in enumerate(range(60))),
        )
    )
