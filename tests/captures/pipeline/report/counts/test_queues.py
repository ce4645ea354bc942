"""Queues: which ones are slow, which messages have not ended, and people's names for them.

The slowest queue always has a row.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.captures.pipeline.report.facts.facts import slowest, worth_a_look
from mqproto.captures.pipeline.report.gather import gather
from mqproto.captures.pipeline.report.page import page
from mqproto.captures.pipeline.report.summary import as_json, lines
from mqproto.captures.pipeline.tables.tables import Tables
from tests.captures.pipeline.report.tables import BEGIN_NS, capture, history, made_up
from tests.captures.pipeline.report.test_page import read

SECOND = 10**9


def test_a_queue_has_how_long_its_messages_took_and_what_people_call_it(gap_held: Tables) -> None:
    facts = gather(gap_held)
    [queue] = facts.queues.queues
    assert queue.called == "65645F33\\16"
    assert (queue.messages, queue.ended, queue.failed, queue.unended, queue.resends) == (9, 9, 0, 0, 11)
    assert queue.arrived.as_json() == facts.messages.arrived.as_json()
    assert queue.course is not None
    assert sum(queue.course.counts) == 9
    assert max(queue.course.waiting) == 3
    assert queue.course.waiting[-1] == 0
    assert [*queue.hosts] == ["127.0.0.1", "127.0.0.3:1801"]


def test_what_has_not_ended_is_counted_with_how_long_ago_it_was_seen(tmp_path: Path) -> None:
    rows = [history(number, queue="PRIVATE=C\\1") for number in range(4)]
    rows[1] |= {"outcome": "in flight", "arrived_ns": None, "latency_ns": None, "order_acked_ns": None}
    rows[2] |= {"outcome": "cannot be told", "arrived_ns": None, "latency_ns": None, "order_acked_ns": None}
    rows[3] |= {"outcome": "expired", "arrived_ns": None, "latency_ns": None, "order_acked_ns": None}
    tables = made_up(
        tmp_path / "out", {"captures": [capture(last_ns=BEGIN_NS + 60 * SECOND)], "histories": rows}
    )
    facts = gather(tables)
    [queue] = facts.queues.queues
    assert (queue.ended, queue.failed, queue.unended) == (1, 1, 2)
    assert 59 * SECOND < queue.oldest_ns < 60 * SECOND
    assert queue.course is not None
    assert queue.course.waiting[-1] == 2
    assert [row["outcome"] for row in facts.messages.unknown] == ["cannot be told"]
    assert [row["outcome"] for row in facts.messages.stuck] == ["in flight"]
    said = read(page(facts)).text
    assert "1 not known: the captures cannot tell" in said
    assert "2 not seen to end, some at all times since" in said
    assert "2 not seen to end, for 60 s" in "\n".join(lines(facts))
    assert as_json(facts)["queues"][0]["unended"] == 2


def test_of_more_queues_than_anybody_has_the_slowest_has_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.captures.pipeline.report.counts.queues.QUEUES_LIMIT", 2)
    rows = [history(number, queue=f"PRIVATE=C\\{number:03}") for number in range(40)]
    rows += [history(100 + number, queue="PRIVATE=C\\000") for number in range(3)]
    rows[23] |= {"latency_ns": 3_600 * SECOND}
    rows[31] |= {"order_acked_ns": BEGIN_NS + 7_200 * SECOND}
    rows[12] |= {"outcome": "in flight", "arrived_ns": None, "latency_ns": None, "order_acked_ns": None}
    tables = made_up(tmp_path / "out", {"captures": [capture()], "histories": rows}, part_rows=3)
    queues = gather(tables).queues
    assert {"000", "012", "023", "031"} <= {queue.name[-3:] for queue in queues.queues}
    assert queues.left_out == len(rows) - sum(queue.messages for queue in queues.queues)
    assert slowest(queues.queues)[0].name[-3:] == "023"
    assert worth_a_look(queues.queues, 1)[0].name[-3:] == "023"
    assert worth_a_look(queues.queues, 2)[1].name[-3:] == "000"


def test_the_hosts_of_a_queue_are_those_of_all_its_messages(tmp_path: Path) -> None:
    rows = [history(number, route=["a", "b", "c"] if number < 40 else ["z", "c"]) for number in range(50)]
    rows[7] |= {"route": None}
    rows[8] |= {"route": []}
    [queue] = gather(made_up(tmp_path / "out", {"histories": rows}, part_rows=20)).queues.queues
    assert [*queue.hosts] == ["a", "c", "z"]
