"""The table of 3.1.5.8, tested with all its cases in a whole queue manager."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import product
from typing import Any, Final

import pytest

from mqproto.base.configuration import Settings
from mqproto.queues.rules import admission
from mqproto.queues.rules.admission import MISSING, NEIGHBOUR, PLAIN, RULES, TRANSACTIONAL, Ruling, Take
from mqproto.session import Remote
from mqproto.wire import MessageClass, TransactionHeader, encode_packet, user_message
from mqproto.wire.shapes import run_of
from tests.observing import administration, final_acks
from tests.pair import at, chain, guid_of, queue
from tests.ways import NA, a_system

A, B, C, X = map(guid_of, "abcx")
QUEUES = tuple(
    replace(queue(str(number), number, transactional=transactional), strangers=is_open)
    for number, (is_open, transactional) in enumerate(product((True, False), (False, True)), 16)
)
BRINGERS: Final = {
    "neighbour": (Remote("a", A, is_proven=True), A, 0),
    "neighbour, of X": (Remote("a", A, is_proven=True), X, 0),
    "stranger": (Remote("x", X, is_proven=False), X, 0),
    "stranger, large": (Remote("x", X, is_proven=False), X, 2_000),
    "stranger, of A": (Remote("x", X, is_proven=False), A, 0),
    "claims to be A": (Remote("x", A, is_proven=False), A, 0),
}
"""For each kind of delivery: the delivering node, the message's source, and the size of its body.

The size is in bytes.
"""
PLACES: Final = {
    "elsewhere": (B, 16, 0),
    "FinalAck": (C, 16, MessageClass.ACK_RECEIVE),
    "no queue": (C, 99, 0),
    "queue": (C, 16, 0),
    "transactional": (C, 17, 0),
    "shut": (C, 18, 0),
    "shut transactional": (C, 19, 0),
}
"""For each place: the destination of a message, and its class; queues that are "shut" are closed to strangers."""
TABLE = """
neighbour       PASS_ON+ 3.1.5.8.2: elsewhere
neighbour       CONFIRM 3.1.5.6, 3.1.5.7: FinalAck
neighbour       REFUSE 3.1.5.8.2 NACK_BAD_DST_Q: no queue
neighbour       LET_IN+ 3.1.5.8.8 / REFUSE 3.1.5.8.2 NACK_NOT_TRANSACTIONAL_Q: queue, shut
neighbour       REFUSE 3.1.5.8.2 NACK_NOT_TRANSACTIONAL_MSG / IN_SEQUENCE+ 3.1.5.8.6: transactional, shut transactional
neighbour, of X TURN_AWAY 3.1.5.8: elsewhere, FinalAck, no queue, queue, transactional, shut, shut transactional
stranger        TURN_AWAY 3.1.5.8: elsewhere
stranger        CONFIRM 3.1.5.6, 3.1.5.7: FinalAck
stranger        REFUSE 3.1.5.8.2 NACK_BAD_DST_Q: no queue
stranger        LET_IN 3.1.5.8.8 / REFUSE 3.1.5.8.2 NACK_NOT_TRANSACTIONAL_Q: queue
stranger        REFUSE 3.1.5.8.2 NACK_NOT_TRANSACTIONAL_MSG / LOOK_UP 3.1.5.8.6: transactional
stranger        REFUSE 3.1.5.8.3 NACK_ACCESS_DENIED: shut, shut transactional
stranger, large TURN_AWAY 3.1.5.8: elsewhere
stranger, large CONFIRM 3.1.5.6, 3.1.5.7: FinalAck
stranger, large REFUSE 3.1.5.8.2 NACK_BAD_DST_Q: no queue
stranger, large REFUSE 3.1.5.8.8 NACK_Q_EXCEED_QUOTA / REFUSE 3.1.5.8.2 NACK_NOT_TRANSACTIONAL_Q: queue
stranger, large REFUSE 3.1.5.8.2 NACK_NOT_TRANSACTIONAL_MSG / REFUSE 3.1.5.8.8 NACK_Q_EXCEED_QUOTA: transactional
stranger, large REFUSE 3.1.5.8.3 NACK_ACCESS_DENIED: shut, shut transactional
stranger, of A  TURN_AWAY 3.1.5.8: elsewhere, no queue, queue, transactional, shut, shut transactional
stranger, of A  CONFIRM 3.1.5.6, 3.1.5.7: FinalAck
claims to be A  TURN_AWAY 3.1.5.8: elsewhere, no queue, shut, shut transactional
claims to be A  CONFIRM 3.1.5.6, 3.1.5.7: FinalAck
claims to be A  LET_IN 3.1.5.8.8 / TURN_AWAY 3.1.5.8: queue
claims to be A  REFUSE 3.1.5.8.2 NACK_NOT_TRANSACTIONAL_MSG / TURN_AWAY 3.1.5.8: transactional
"""


def verdicts() -> list[str]:
    """Return lines that say who delivers a message, what the verdict is, and where the message goes.

    A verdict after a slash applies to transactional messages.
    """
    net = chain("a", "c", queues=QUEUES, settings=Settings(strangers_queue_bytes=1_000))
    judge, lines = net.nodes["c"].up.inspect().arrivals.judge, defaultdict[str, list[str]](list)
    for (who, (remote, source, size_bytes)), (where, (manager, number, kind)) in product(
        BRINGERS.items(), PLACES.items()
    ):
        told = []
        for header in (None, TransactionHeader(tx_sequence_number=1)):
            names: dict[str, Any] = {"source": source, "destination_manager": manager, "destination": number}
            message = user_message(
                **names, message_id=1, sent_time_s=0, body=bytes(size_bytes), transaction=header
            )
            message.properties.message_class = kind
            take, section, refusal, together, _ = judge(run_of(encode_packet(message)), 0, remote)[0]
            refused = "" if refusal is None else f" {refusal.name}"
            told.append(f"{take.name}{'+' * together} {section}{refused}")
        lines[f"{who:<16}{' / '.join(dict.fromkeys(told))}"].append(where)
    return [f"{told}: {', '.join(where)}" for told, where in lines.items()]


class Asked(dict[Any, Ruling]):
    """A copy of RULES that records each case that is looked up in it."""

    def __init__(self) -> None:
        super().__init__(RULES)
        self.cases = set[Any]()

    def __getitem__(self, case: Any) -> Ruling:
        self.cases.add(case)
        return super().__getitem__(case)


@pytest.mark.spec("[MS-MQQB] 3.1.5.8")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.2")
def test_everybody_who_may_bring_a_message_crossed_with_every_place_where_it_may_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This is a snapshot: if a rule is changed, it shows what else changes. A `+` joins places with the same
    verdict.
    """
    monkeypatch.setattr(admission, "RULES", asked := Asked())
    lines = verdicts()
    print(*lines, sep="\n")
    assert lines == TABLE.strip().splitlines()
    assert asked.cases == set(RULES), "no rule is for a case that cannot be"


NUMBERS = {MISSING: 99, PLAIN: 17, TRANSACTIONAL: 16}
NAMES = {PLAIN: "notes", TRANSACTIONAL: "orders"}


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.5")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize(("kind", "transactional"), list(product(NUMBERS, (False, True))))
def test_a_message_is_let_in_or_refused_as_the_table_says(kind: bool | None, transactional: bool) -> None:
    net = a_system()
    net.send(
        "a",
        at("c", NUMBERS[kind]),
        "x",
        transactional=transactional,
        admin_queue=at("a", 5).name,
        acknowledgments=NA,
    )
    net.pass_ms(1_000)
    ruling = RULES[NEIGHBOUR, kind, transactional]
    if ruling.message_class is not None:
        assert administration(net, "a") == [ruling.message_class]
        assert final_acks(net, "c", "b") == [ruling.message_class] * transactional
    else:
        assert kind is not None
        assert net.receive("c", NAMES[kind]) == [b"x"]
        assert administration(net, "a") == []
        assert bool(net.nodes["c"].up.inspect().incoming) == (ruling.take is Take.IN_SEQUENCE)
