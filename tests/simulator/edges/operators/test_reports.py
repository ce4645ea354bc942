"""The README's examples of an audit and of the desk have the form of the real output."""

from __future__ import annotations

from datetime import UTC, datetime

from mqproto.edge.custody import End, Evidence, Removal
from mqproto.simulator.client import MessageId
from mqproto.simulator.edges.operators.failures import FailedMessage
from mqproto.simulator.edges.operators.reading import Audit, Unknown
from mqproto.simulator.edges.operators.report import audit_told, failures_told
from mqproto.wire.guid import Guid, guid_from_text
from tests.test_readme import console_blocks

SENDER = guid_from_text("963EBEB9-8A2F-504A-9728-78C61096BF80")


def several(count: int, confirmed: str = "", taken: str = "", **known: str | bool) -> list[Evidence]:
    ends = {"its name": confirmed} if confirmed else {}
    removals = [Removal("its name", taken)] if taken else []
    return [
        Evidence(r"destination\orders", names=["its name"], ends=ends, removals=removals, **known)  # type: ignore[arg-type]
        for _ in range(count)
    ]


def test_the_audit_of_the_readme() -> None:
    known = [
        *several(1_938, processed=True),
        *several(29, copied="business error"),
        *several(2, copied="retrieval failure"),
        *several(6, confirmed="ACK_RECEIVE"),
        *several(10, confirmed="NACK_Q_EXCEED_QUOTA", has_letter=True),
        *several(2, confirmed="NACK_Q_PURGED", has_letter=True),
        *several(1, confirmed="NACK_RECEIVE_REJECTED", taken="ACK_RECEIVE"),
        *several(9, waits=True),
        *several(3, on_its_way=True),
    ]
    audit = Audit({str(number): one for number, one in enumerate(known)}, Unknown())
    [[shown]] = console_blocks("audit")
    assert list(audit_told(audit)) == (shown.output or "").splitlines()
    audit.answered["7"] = Evidence(r"destination\orders", "order-7", ["7"])
    audit.unknown.not_here.append("intermediate")
    assert list(audit_told(audit))[-3:] == [
        "    1 unaccounted for",
        r"nobody has 7 (order-7) for destination\orders: `mqproto history order-7`",
        "intermediate is not here: what lies there is not known",
    ]
    assert len(audit.counted()[End.UNACCOUNTED]) == 1


def failure(ordinal: int, key: str, place: str, why: str, attempts: int, at: datetime) -> FailedMessage:
    name = MessageId(Guid(SENDER), ordinal)
    node, where = place.split("\\")
    kind, _, reason = why.partition(": ")
    queue = r"destination\orders"
    return FailedMessage(str(name), key, node, where, queue, kind, reason, attempts, "", 0, at, name, 0)


def test_the_desk_of_the_readme() -> None:
    errors, letters = r"destination\orders-errors", r"sender\system$;deadxact"
    account = "business error: unknown-account: there is no 17"
    failures = [
        failure(2871206362, "order-18", errors, account, 1, at(30, 12)),
        failure(2871206365, "order-21", errors, "retrieval failure: HTTP 503", 20, at(41, 50)),
        failure(2871206370, "order-26", letters, "NACK_Q_EXCEED_QUOTA", 0, at(42, 7)),
    ]
    [[shown]] = console_blocks("failed-messages")
    assert list(failures_told(failures)) == (shown.output or "").splitlines()


def at(minute: int, second: int) -> datetime:
    return datetime(2026, 11, 26, 9, minute, second, tzinfo=UTC)
