"""Cases: they are stored in files and read back unchanged, given another identity, and combined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.simulator.fuzz.findings import FuzzFinding, file_of, load, save
from mqproto.simulator.fuzz.tactics.cases import Act, Case, Step, case_as_how, case_from_how, joined
from mqproto.wire import Guid, encode_packet
from tests.examples import SENDER, SENT_S, a_guid, a_transactional_message

sends = st.builds(
    Step,
    st.just(Act.SEND),
    st.integers(0, 30),
    st.binary(max_size=50),
    st.integers(0, 20),
    st.text("abc: ,\n'\"é\x7f", max_size=12),
)
others = st.builds(
    Step, st.sampled_from([Act.AWAIT, Act.FINISH, Act.CLOSE, Act.RESET]), st.integers(0, 30)
) | st.builds(Step, st.just(Act.WATCH))
datagrams = st.builds(Step, st.just(Act.DATAGRAM), data=st.binary(max_size=30))
cases = st.builds(
    Case,
    st.text(max_size=10),
    st.text(max_size=10),
    st.lists(sends | others | datagrams, max_size=8).map(tuple),
    st.binary(min_size=16, max_size=16).map(Guid),
    st.integers(0, 2**32 - 1),
    st.integers(0, 10**9),
)


@given(case=cases)
def test_a_case_is_read_back_as_it_was(case: Case) -> None:
    assert case_from_how(case_as_how(case), case.data) == case


def test_a_case_is_read_back_from_the_file_of_its_finding(tmp_path: Path) -> None:
    steps = (Step(Act.SEND, 1, b"half", 2, "a note"), Step(Act.WATCH), Step(Act.SEND, 0, b"other"))
    case = Case("kind", "na\x7fme", steps, SENDER, SENT_S)
    finding = FuzzFinding("group", "detail", case.data, case_as_how(case))
    save(finding, tmp_path)
    kept = load(file_of(finding, tmp_path))
    assert case_from_how(kept.how, kept.data) == case


@pytest.mark.parametrize(
    ("changes", "data", "reason"),
    [
        ({"fuzz": "parser"}, b"", "it is for `mqproto fuzz parser`"),
        ({"steps": ["dance on 1"], "notes": [""]}, b"", "'dance' is not a valid Act"),
        ({"steps": ["send on one"], "notes": [""]}, b"", "'send on one' is not a step"),
        ({"steps": ["send on 1: 5 bytes"], "notes": [""]}, b"four", "and there are 4 bytes"),
        ({"steps": [], "notes": []}, b"four", "4 bytes belong to no step"),
        ({"identity": "me"}, b"", "is not a GUID"),
        ({"steps": ["watch"], "notes": []}, b"", "shorter"),
    ],
)
def test_what_is_no_case_is_refused_in_one_line(changes: dict[str, object], data: bytes, reason: str) -> None:
    how = case_as_how(Case("kind", "name", (), SENDER, SENT_S)) | changes
    with pytest.raises(UsageError, match=reason) as refusal:
        case_from_how(how, data)
    assert "\n" not in str(refusal.value)


def test_a_case_without_something_says_what_it_lacks() -> None:
    how = case_as_how(Case("kind", "name", (), SENDER, SENT_S))
    del how["number"]
    with pytest.raises(UsageError, match="it has no 'number'"):
        case_from_how(how, b"")


def test_told_anew_it_is_the_same_but_for_who_tells_it_and_when() -> None:
    packet = encode_packet(a_transactional_message())
    case = Case("kind", "name", (Step(Act.SEND, 0, packet, was=packet),), SENDER, SENT_S)
    other = a_guid(77)
    renewed = case.renewed(other, SENT_S + 5)
    assert renewed.data.count(bytes(SENDER)) == 0
    assert renewed.data.count(bytes(other)) == case.data.count(bytes(SENDER)) > 0
    assert renewed.steps[0].was == renewed.data
    assert renewed.renewed(SENDER, SENT_S) == case


def test_cases_together_keep_their_connections_apart() -> None:
    one = Case("a", "one", (Step(Act.SEND, 2, b"x"), Step(Act.WATCH)), SENDER, SENT_S)
    other = Case("b", "other", (Step(Act.SEND, 0, b"y"), Step(Act.AWAIT, 0)), SENDER, SENT_S)
    together = joined([one, other])
    assert together.connections == {2, 3}
    assert together.data == b"xy"
    assert "2 cases at once" in together.name
    assert replace(together.steps[1], connection=0) == other.steps[0]
