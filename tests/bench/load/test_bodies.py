from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqproto.messages.drafts import Draft
from simulator.demo.workload import BATCH_BYTES, BATCH_MESSAGES, HEAVY, Workload, orders
from tests.bench.load.bodies import ALTERED, REQUEST_BYTES, REQUEST_MESSAGES, UNALTERED, bodies_of


@given(st.integers(0, 2_000), st.sampled_from([0, 1, 1_024, 100_000, 4_000_000]))
def test_requests_of_one_body_have_all_messages_and_keep_within_both_limits(count: int, size: int) -> None:
    requests = list(bodies_of(bytes(size)).requests(count))
    assert sum(map(len, requests)) == count
    for request in requests:
        assert len(request) == 1 or len(request) <= min(REQUEST_MESSAGES, REQUEST_BYTES // max(1, size))


def test_requests_of_a_workload_go_on_behind_those_before_them() -> None:
    work = orders(500, seed=2, sizes=HEAVY)
    bodies = bodies_of(work)
    first = list(bodies.requests(200))
    requests = [*first, bodies.drafts(100), *bodies.requests(200)]
    drafts = [draft for request in requests for draft in request]
    assert [(draft.label, draft.body) for draft in drafts] == list(work.items())
    assert all(draft.transactional for draft in drafts)
    for request in (*requests[: len(first)], *requests[len(first) + 1 :]):
        assert len(request) <= BATCH_MESSAGES
        assert len(request) == 1 or sum(len(draft.body) for draft in request) <= BATCH_BYTES


@pytest.mark.parametrize("messages", [b"body", orders(3, sizes=HEAVY)], ids=["alike", "mixed"])
def test_what_came_is_known_by_what_was_sent(messages: bytes | Workload) -> None:
    bodies = bodies_of(messages)
    sent = bodies.drafts(3)
    came = [Draft(body=draft.body, label=draft.label) for draft in sent]
    assert bodies.digests(came) == bodies.digests(sent)
    came[1] = Draft(body=b"else", label=came[1].label)
    assert [one == other for one, other in zip(bodies.digests(came), bodies.digests(sent), strict=True)] == [
        True,
        False,
        True,
    ]


def test_of_one_body_no_digest_is_taken() -> None:
    assert bodies_of(b"").digests([Draft(body=b""), Draft(body=b"x")]) == [UNALTERED, ALTERED]


@given(st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=10, unique=True))
def test_mixed_messages_are_told_from_each_other_by_label_and_body(contents: list[tuple[str, bytes]]) -> None:
    messages = [Draft(body=body, label=label) for label, body in contents]
    assert len(set(bodies_of(orders(0)).digests(messages))) == len(messages)
