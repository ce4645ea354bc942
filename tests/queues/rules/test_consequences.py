"""The table of what follows when a message ends.

tests/manager/test_outcomes.py plays through each way in which a message can end.
"""

from __future__ import annotations

from itertools import product

import pytest

from mqproto.queues.localqueue import SystemQueue
from mqproto.queues.rules.consequences import CONSEQUENCES, End, FinalAckRule, end_of
from mqproto.wire import MessageClass
from tests.ways import WAYS

NOT_TAKEN = (
    MessageClass.NACK_BAD_DST_Q,
    MessageClass.NACK_BAD_ENCRYPTION,
    MessageClass.NACK_BAD_SIGNATURE,
    MessageClass.NACK_ACCESS_DENIED,
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
)


def test_the_table_has_all_cases_and_no_other() -> None:
    assert set(CONSEQUENCES) == set(product(End, (False, True), (False, True)))


def test_each_end_is_acted_out_with_and_without_a_transaction() -> None:
    acted = {(end_of(event), kind) for way in WAYS for kind in way.of.split(", ") for event in way.history}
    assert acted == set(product(End, ("express", "transactional")))


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.6")
@pytest.mark.parametrize("message_class", [one for one in MessageClass if one & 0x8000])
def test_a_class_whose_second_bit_is_set_tells_of_a_message_that_was_in_its_queue(
    message_class: MessageClass,
) -> None:
    kept_out = End.NOT_TAKEN if message_class in NOT_TAKEN else End.KEPT_OUT
    assert end_of(message_class) is (End.TAKEN_OUT if message_class & 0xC000 == 0xC000 else kept_out)


@pytest.mark.spec("[MS-MQQB] 3.1.7.2.2")
@pytest.mark.parametrize(("case", "consequence"), CONSEQUENCES.items())
def test_final_acks_are_for_transactional_messages_of_others_and_kept_is_one_s_own_of_these(
    case: tuple[End, bool, bool], consequence: object
) -> None:
    end, ours, transactional = case
    told, kept = CONSEQUENCES[case]
    assert (told is not FinalAckRule.NEVER) == (transactional and not ours and end is not End.REACHED)
    if kept is SystemQueue.JOURNAL:
        assert (ours, end) == (True, End.RECEIVED if transactional else End.REACHED)
    elif kept is not None:
        assert end in (End.KEPT_OUT, End.NOT_TAKEN, End.TAKEN_OUT)
        assert ours or end is not End.NOT_TAKEN
        assert kept is (SystemQueue.DEADXACT if transactional else SystemQueue.DEADLETTER)
        assert ours or not transactional
