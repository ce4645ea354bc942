"""The matrix in short: one cell a day, of those that live with ours. `make letter` has all of them."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest
import trio

from .matrix import CANNOT, NONE, cases, cell, verdict

LIVE = [
    case for case in cases() if case.label not in CANNOT and case.story == "exchange" and case.name != NONE
]
TODAY = os.environ.get("MQPROTO_LETTER_SWITCH") or LIVE[date.today().toordinal() % len(LIVE)].name


@pytest.mark.parametrize("name", [TODAY])
def test_our_node_lives_with_the_switch_of_the_day(name: str, tmp_path: Path) -> None:
    [case] = [case for case in LIVE if case.name == name]
    it = cell(case, tmp_path, messages=5, cuts=2, seed=date.today().toordinal())
    trio.run(it.run)
    assert verdict(case.label, it.faults) == "ok", it.faults


def test_what_cannot_live_with_ours_is_a_case_of_the_matrix() -> None:
    assert CANNOT.keys() <= {case.label for case in cases()}
