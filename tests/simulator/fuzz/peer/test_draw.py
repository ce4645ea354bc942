"""Cases by number: each kind occurs, a number always gives the same case, and no lie is repeated before all have been
told.
"""

from __future__ import annotations

from collections import Counter

import pytest

from mqproto.simulator.fuzz.peer import draw
from mqproto.simulator.fuzz.peer.draw import AIMED_EVERY, draw_case, lies_in
from mqproto.simulator.fuzz.tactics.outofturn import OUT_OF_TURN, STRANGERS, TACTICS
from mqproto.simulator.fuzz.tactics.talk import PeerTarget
from tests.examples import DESTINATION

TARGET = PeerTarget(
    (r"TCP:127.0.0.1\private$\notes", r"TCP:127.0.0.1\private$\orders"), DESTINATION, sent_s=1_700_000_000
)


def test_a_case_is_made_from_its_seed_and_number_alone() -> None:
    first = [draw_case(TARGET, 1, number) for number in range(300)]
    assert [draw_case(TARGET, 1, number) for number in reversed(range(300))] == first[::-1]
    assert [draw_case(TARGET, 2, number) for number in range(1, 300)] != first[1:]


@pytest.mark.long
def test_every_kind_comes_and_the_first_has_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "STRANGERS_SHARE", 0.5)
    kinds = Counter(draw_case(TARGET, 1, number).kind for number in range(3_000))
    assert draw_case(TARGET, 1, 0).kind == "valid"
    assert kinds["valid"] == 1
    assert set(TACTICS) < set(kinds)
    assert sum(count for kind, count in kinds.items() if kind.startswith("mutated")) > 1_000


def test_strangers_who_take_long_are_few() -> None:
    kinds = Counter(draw_case(TARGET, 1, number).kind for number in range(1_000))
    assert 0 < sum(kinds[name] for name in STRANGERS.keys() - OUT_OF_TURN.keys()) < 50
    assert sum(kinds[name] for name in OUT_OF_TURN) > 100


def test_each_lie_about_a_field_is_told_once_before_any_is_told_again() -> None:
    lies = lies_in(TARGET.queues[0], 1)
    assert len(lies) > 1_000
    names = {edit.name for _, edit in lies}
    assert len(names) == len(lies)
    assert {
        "soap.header_data_length = 0x80000000",
        "security.provider_info_size = 0xffffffff",
        "user.flags: has_security = 1",
        "multi_queue_format.destination.element_count = 0xffffffff",
    } <= names
    told = [draw_case(TARGET, 1, AIMED_EVERY * index).name for index in range(1, 40)]
    assert told == [f"{kind}: {edit.name}" for kind, edit in lies[1:40]]
