"""The permitted actions and expectations of a validation."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.rig.load.validator import Cue
from mqproto.simulator.rig.validation.scenario import (
    STAGES,
    Outcome,
    ValidationScenario,
    as_json,
    load,
    shipped,
    show,
)

MINIMAL = 'title = "t"\nheading = "h"\n'


@pytest.mark.parametrize("name", shipped())
def test_each_shipped_scenario_expects_something_of_each_message(name: str) -> None:
    scenario = load(name)
    assert {"accepted", "committed", "validator"} <= set(scenario.expect)
    assert scenario.title
    assert scenario.heading


def test_a_scenario_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        MINIMAL + 'cues = ["late"]\n[[strikes]]\nkill = "trigger"\nwhen = "called"\n[expect]\nread = 3\n'
    )
    scenario = load(str(path))
    assert scenario.cues == (Cue.LATE,)
    assert (scenario.strikes[0].kill, scenario.strikes[0].count) == ("trigger", 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("title = 3\nheading = ''\n[expect]\n", "Expected `str`, got `int` - at `$.title`"),
        (MINIMAL, "missing required field `expect`"),
        (MINIMAL + "[expect]\nmisread = 3\n", "expect.misread: no such stage; there are: accepted, dropped"),
        (MINIMAL + '[expect]\nread = ">3"\n', "expect.read = '>3': write a number"),
        (MINIMAL + "messages = 0\n[expect]\n", "messages = 0: must be 1 to 1,000"),
        (MINIMAL + 'cues = ["sulk"]\n[expect]\n', "Invalid enum value 'sulk'"),
        ("title = ", "is not a scenario"),
        ("title = '\udcff'", "is not a scenario: 'utf-8' codec"),
        (MINIMAL + 'cue = ["fail"]\n[expect]\n', "unknown key 'cue'; there is title, heading"),
        (MINIMAL + "only = 3\n[expect]\n", "only = 3: messages are counted from 0, and there are 3"),
        (MINIMAL + "timeout_s = nan\n[expect]\n", "at `$.timeout_s`"),
        (MINIMAL + 'via = "client"\nunread = 1\n[expect]\n', "there is no gateway for unread"),
        (
            MINIMAL + "[expect]\n[[strikes]]\nkill = 'me'\nwhen = 'called'\n",
            "value 'me' - at `$.strikes[0].kill`",
        ),
        (MINIMAL + "[expect]\n[[strikes]]\nkill = 'trigger'\nwhen = 'called'\nat = 3\n", "'at'; there is"),
    ],
)
def test_a_file_that_is_no_scenario_says_what_is_wrong(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8", "surrogateescape")
    with pytest.raises(UsageError) as refused:
        load(str(path))
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["nothing", "nothing.toml"])
def test_a_scenario_that_is_not_there_is_said(name: str) -> None:
    with pytest.raises(UsageError, match=r"no (scenario|file) nothing"):
        load(name)


@pytest.mark.parametrize(
    ("expected", "count", "holds"), [(3, 3, True), (3, 4, False), (">=3", 4, True), (">=3", 2, False)]
)
def test_an_expectation_is_a_number_or_at_least_one(expected: int | str, count: int, holds: bool) -> None:
    scenario = ValidationScenario(title="t", heading="h", expect={"read": expected})
    assert scenario.holds("read", count) is holds
    assert all(scenario.holds(stage, 7) for stage in set(STAGES) - {"read", "unaccounted"})
    assert [scenario.holds("unaccounted", count) for count in (0, 1)] == [True, False]


def an_outcome(**counts: int) -> Outcome:
    scenario = ValidationScenario(
        title="Three are sent", heading="Test Project", expect={"read": 3, "committed": ">=1"}
    )
    return Outcome("three", scenario, dict.fromkeys(STAGES, 0) | counts)


def test_the_table_marks_what_is_not_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    show([an_outcome(read=3, committed=3), an_outcome(read=4)._replace(logs="/logs", trouble="it hangs")])
    printed = capsys.readouterr().out.splitlines()
    assert printed[2].split() == ["three", "0", "0", "4!", "0", "0", "0!", "0", "0", "0", "0", "0", "0"]
    assert printed[3:] == [
        "three: it hangs",
        "three: times that a message was read from its queue: 4, expected 3",
        "three: messages that have left their queue for good: 0, expected >=1",
        "three: logs are in /logs",
        "1 of 2 scenarios went as expected",
    ]


def test_programs_get_what_was_counted_and_what_was_expected() -> None:
    [said] = as_json([an_outcome(read=4, committed=1)])
    assert (said["broken"], said["counts"]["read"], said["expected"]["read"]) == (["read"], 4, 3)
