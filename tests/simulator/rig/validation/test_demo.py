"""Messages that arrive and leave over HTTP are processed once, in order, whatever dies; the checks would notice
anything else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mqproto.edge.custody import End
from mqproto.simulator.rig.load.posting import Handover
from mqproto.simulator.rig.load.validator import CODE
from mqproto.simulator.rig.validation.demo import VICTIMS, messages_of, run_edges_demo
from mqproto.simulator.rig.validation.ledger import Failed
from mqproto.simulator.rig.validation.report import EdgesReport
from mqproto.simulator.rig.verdict import RunOracle
from tests.simulator.typed import in_process

pytestmark = pytest.mark.usefixtures("forked_programs")


async def test_whatever_is_killed_each_message_is_processed_once_or_is_in_the_error_queue(
    new_sqlite_url: Callable[[], str],
) -> None:
    """This is a short `mqproto demo --edges`. Other tests check, on each database, what a killed process leaves in the
    history.

    "OSB Rules": any recoverable error must not prevent the message from the delivery.
    """
    report = await run_edges_demo(80, seed=3, history=new_sqlite_url(), rounds=1)
    assert report.broken == [], f"stores and logs are in {report.folder}"
    assert report.kills == dict(Counter(name for victims in VICTIMS for name in victims))
    invalid = {message.key for message in report.messages if json.loads(message.body)["amount_cents"] < 0}
    assert {failed.key for failed in report.failed} == invalid - set(report.handover.refused)
    assert len(report.processed) + len(report.failed) == len(report.handover.accepted)
    assert set(report.audited) == set(report.handover.accepted.values())
    # A trigger that is killed right behind its commit has no line of that; it had one before it called the consumer.
    assert "attempted" in "".join(report.story)


async def test_what_is_purged_full_or_given_up_is_accounted_for_as_well() -> None:
    """This is a short `mqproto demo --edges --rough`."""
    report = await run_edges_demo(40, seed=1, rounds=1, rough=True)
    assert report.broken == [], f"stores and logs are in {report.folder}"
    assert report.letters is not None
    assert sorted(report.audited) == sorted(report.handover.accepted.values())


def test_what_does_not_go_together_is_said() -> None:
    done = in_process("demo", "--edges", "--input", ".")
    assert (done.status, done.complaint) == (
        2,
        "--edges makes its own orders and no capture: leave --input and --capture out",
    )
    assert in_process("demo", "--history", "sqlite:///x").complaint == "--history is for --edges"
    assert in_process("demo", "--rough").complaint == "--rough is for --edges"


# The check


def a_report(**changes: Any) -> EdgesReport:
    """Return a report about two producers with three messages each: all were accepted, and the consumer refused one."""
    messages = [*messages_of(0, 3, 7), *messages_of(1, 3, 7)]
    keys = [message.key for message in messages]
    bodies = {message.key: message.body for message in messages}
    report = EdgesReport(
        seed=7,
        duration_s=1.0,
        folder="",
        kills={},
        messages=messages,
        handover=Handover(accepted={key: f"id of {key}" for key in keys}),
        processed={key: bodies[key] for key in ("1-1", "0-1", "0-2", "1-2", "0-3")},
        calls=Counter(),
        dropped_by_consumer=0,
        questions=0,
        failed=[Failed("1-3", bodies["1-3"], "business error", f"{CODE}: no")],
        audited={f"id of {key}": End.IN_ERROR_QUEUE if key == "1-3" else End.PROCESSED for key in keys},
        letters=None,
        said=Counter(),
        story=[],
    )
    return replace(report, **changes)


def without(report: EdgesReport, key: str) -> dict[str, bytes]:
    return {each: body for each, body in report.processed.items() if each != key}


RIGHT = a_report()
FAILED = RIGHT.failed[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"processed": without(RIGHT, "0-2")}, "0-2 is processed, as the audit says"),
        ({"failed": []}, "1-3 is in an error queue, as the audit says"),
        ({"letters": set()}, "0-1 is a dead letter, as the audit says"),
        ({"audited": {"id of 0-1": End.IN_ITS_QUEUE}}, "0-1 is in its queue, as the audit says"),
        ({"audited": {}}, "0-1 is unaccounted for, as the audit says"),
        (
            {"audited": RIGHT.audited | {"another": End.PROCESSED}},
            "another was never answered 200, and the audit has it",
        ),
    ],
)
def test_in_a_rough_run_each_message_is_where_the_audit_says(changes: dict[str, Any], said: str) -> None:
    rough = replace(
        RIGHT,
        processed=without(RIGHT, "0-1"),
        audited=RIGHT.audited | {"id of 0-1": End.DEAD_LETTER},
        letters={"id of 0-1"},
    )
    assert rough.broken == []
    assert said in replace(rough, **changes).broken


def test_a_run_that_keeps_its_promises_is_not_broken() -> None:
    assert RIGHT.broken == []
    assert {message.queue for message in RIGHT.messages} == {"orders"}


def test_of_a_consumer_that_lies_no_promise_holds_and_of_what_no_gateway_answered_no_audit_tells() -> None:
    both = replace(RIGHT, processed=RIGHT.processed | {"1-3": FAILED.body}, audited={})
    assert all(both.found()[oracle] for oracle in (RunOracle.DOUBLED, RunOracle.AUDIT))
    told = replace(both, is_honest=False, is_heard=False).found()
    assert [text for texts in told.values() for text in texts] == []


def test_what_is_in_no_group_has_the_order_of_its_queue() -> None:
    messages = [replace(message, group=0) for message in RIGHT.messages]
    assert replace(RIGHT, messages=messages).found()[RunOracle.REORDERED] == [
        "1-1 was processed before 0-3",
        "1-2 was processed before 0-3",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"processed": without(RIGHT, "0-2")}, "0-2 was accepted, and is lost"),
        (
            {"processed": RIGHT.processed | {"1-3": FAILED.body}},
            "1-3 was processed, and is in the error queue",
        ),
        ({"failed": [FAILED, FAILED]}, "1-3 is in the error queue 2 times"),
        ({"failed": []}, "1-3 was accepted, and is lost"),
        (
            {"failed": [FAILED._replace(failure="retrieval failure", reason="delivered 100 times")]},
            "1-3 is in the error queue for another reason: retrieval failure, delivered 100 times",
        ),
        (
            {"processed": {"0-2": RIGHT.processed["0-2"], **without(RIGHT, "0-2")}},
            "0-2 was processed before 0-1",
        ),
        ({"processed": RIGHT.processed | {"0-2": b"{}"}}, "0-2 came out with another body"),
        ({"processed": RIGHT.processed | {"9-9": b""}}, "'9-9' was never handed in, and came out"),
        (
            {
                "handover": replace(
                    RIGHT.handover,
                    refused={"0-1": "invalid"},
                    accepted=dict(list(RIGHT.handover.accepted.items())[1:]),
                )
            },
            "0-1 was refused: invalid",
        ),
        (
            {"handover": replace(RIGHT.handover, accepted=dict(list(RIGHT.handover.accepted.items())[1:]))},
            "0-1 never had an answer that was final",
        ),
        ({"handover": replace(RIGHT.handover, wrong=["two ids"])}, "two ids"),
        (
            {"audited": RIGHT.audited | {"id of 0-1": End.IN_ITS_QUEUE}},
            "0-1 is processed, and the audit says in its queue",
        ),
        ({"audited": {}}, "1-3 is in an error queue, and the audit says unaccounted for"),
        (
            {"audited": RIGHT.audited | {"another": End.PROCESSED}},
            "another was never answered 200, and the audit has it",
        ),
    ],
)
def test_each_promise_that_is_broken_is_said(changes: dict[str, Any], said: str) -> None:
    assert said in replace(RIGHT, **changes).broken
