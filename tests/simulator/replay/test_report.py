"""The report about a replay, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

from mqproto.captures.answers import Answers
from mqproto.captures.script import Script, choose, read_script, survey
from mqproto.simulator.replay.report import SHOWN, Difference, Report, compare, report_of
from mqproto.simulator.replay.stage import Outcome
from tests.conversations import DESTINATION, SENDER, answered, seen, write


def a_script(path: Path) -> Script:
    packets = seen(write(path / "c", answered([1, 2, 3])))
    return read_script(packets, choose(survey(packets)))


def a_conversation(script: Script, sent: int) -> Answers:
    """Return the account of a script's messages, the first `sent` of which were sent; nothing was answered."""
    live = Answers()
    for message in script.messages:
        live.expect(message.identity, message.place)
    for number in range(sent):
        live.sent(number)
    return live


def a_report(script: Script, live: Answers, outcome: Outcome) -> Report:
    outcome.peer, outcome.own, outcome.manager = "127.0.0.2:1801", SENDER, DESTINATION
    return report_of(script, live, outcome, 1.25)


def test_a_conversation_does_not_differ_from_itself(tmp_path: Path) -> None:
    script = a_script(tmp_path)
    assert compare(script, script.answers, Outcome()) == []


def test_what_could_not_be_sent_is_one_difference_with_its_reason(tmp_path: Path) -> None:
    script = a_script(tmp_path)
    outcome = Outcome(ending="the peer closed the connection", section="3.1.5.5.1", is_broken=True)
    first, *others = compare(script, a_conversation(script, 1), outcome)
    words = "this and 1 more could not be sent: the peer closed the connection  [MS-MQQB] 3.1.5.5.1"
    assert first == Difference(2, script.messages[1].frame, words)
    assert {each.message for each in others} == {None, 1}


def test_a_peer_that_broke_off_after_all_was_sent_is_a_difference_too(tmp_path: Path) -> None:
    script = a_script(tmp_path)
    outcome = Outcome(ending="the peer reset the connection", is_broken=True)
    assert compare(script, script.answers, outcome) == [
        Difference(None, None, "the peer reset the connection")
    ]


def test_that_nothing_more_came_is_told_by_what_is_missing_or_else_by_itself(tmp_path: Path) -> None:
    script = a_script(tmp_path)
    outcome = Outcome(ending="nothing new came of it for 5 s")
    assert all(
        outcome.ending not in each.text for each in compare(script, a_conversation(script, 3), outcome)
    )
    assert compare(script, script.answers, outcome) == [Difference(None, None, outcome.ending)]


def test_what_differs_alike_is_one_line_with_its_messages(tmp_path: Path) -> None:
    script = a_script(tmp_path)
    report = a_report(script, a_conversation(script, 3), Outcome())
    numbers = [1, 2, 3, 5, *range(7, 11), *range(20, 40, 2)]
    report.differences = [Difference(None, None, "the peer closed the connection")]
    for number in numbers:
        report.differences += [
            Difference(number, 7 + number, text) for text in ("no OrderAck", "no FinalAck")
        ]
    report.differences.append(Difference(4, 99, "it came twice"))
    assert [line for line in report.as_lines() if line.startswith("differs: ")] == [
        "differs: the peer closed the connection",
        "differs: messages 1 to 3, 5, 7 to 10, 20, 22, and 8 more ranges (frames 8 to 45): no OrderAck",
        "differs: messages 1 to 3, 5, 7 to 10, 20, 22, and 8 more ranges (frames 8 to 45): no FinalAck",
        "differs: message 4 (frame 99): it came twice",
    ]
    assert len(report.as_json()["differences"]) == 2 * len(numbers) + 2


def test_people_see_the_first_differences_and_programs_all(tmp_path: Path) -> None:
    script = a_script(tmp_path)
    report = a_report(script, a_conversation(script, 3), Outcome())
    report.differences = [Difference(number, 7, f"no OrderAck for {number}") for number in range(1, 100)]
    lines = [line for line in report.as_lines() if line.startswith("differs: ")]
    assert lines[0] == "differs: message 1 (frame 7): no OrderAck for 1"
    assert (len(lines), lines[-1]) == (SHOWN + 1, "differs: 79 more, which --json has")
    assert len(json.loads(json.dumps(report.as_json()))["differences"]) == 99


def test_programs_get_all_that_people_see(tmp_path: Path) -> None:
    script = a_script(tmp_path)
    report = a_report(script, script.answers, Outcome())
    report.changes.note("user.message_id", 1, 2)
    shown = report.as_json()
    assert shown["rewritten"] == {"user.message_id": {"messages": 1, "captured": "1", "sent": "2"}}
    assert shown["answers"]["OrderAcks"] == {"captured": 3, "live": 3}
    assert (shown["differences"], shown["sent"], shown["messages"]) == ([], 3, 3)
    assert list(report.as_lines())[-1] == "the peer answered as in the capture"
