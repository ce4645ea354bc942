"""The table of admission, crossed with all its cases in whole queue managers."""

from __future__ import annotations

from itertools import product

import pytest

from mqproto.queues.rules.admission import ADMISSIONS, MISSING, Admission
from mqproto.wire import MessageClass
from tests.observing import administration, final_acks
from tests.pair import at
from tests.ways import NA, a_system

QUEUES = {None: 99, False: 17, True: 16}
NAMES = {False: "notes", True: "orders"}


def test_the_table_has_all_cases_and_no_other() -> None:
    assert set(ADMISSIONS) == set(product((MISSING, False, True), (False, True)))


@pytest.mark.spec("[MS-MQQB] 3.1.5.8.5")
@pytest.mark.spec("[MS-MQQB] 3.1.5.8.6")
@pytest.mark.parametrize(("queue", "transactional"), ADMISSIONS)
def test_a_message_is_let_in_or_refused_as_the_table_says(queue: bool | None, transactional: bool) -> None:
    net = a_system()
    net.send(
        "a",
        at("c", QUEUES[queue]),
        "x",
        transactional=transactional,
        admin_queue=at("a", 5).name,
        acknowledgments=NA,
    )
    net.pass_ms(1_000)
    admission = ADMISSIONS[queue, transactional]
    if isinstance(admission, MessageClass):
        assert administration(net, "a") == [admission]
        assert final_acks(net, "c", "b") == [admission] * transactional
    else:
        assert queue is not None
        assert net.receive("c", NAMES[queue]) == [b"x"]
        assert administration(net, "a") == []
        assert bool(net.nodes["c"].up.inspect().incoming) == (admission is Admission.IN_SEQUENCE)
