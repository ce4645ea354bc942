"""Limits the size of the project by budgets.  `python -m tests.proportion` prints the counts.

A budget is the count at the time when it was set, rounded up to a whole step. If a count exceeds its budget, the test
fails: first look for something to remove. The commit message of a change that raises a budget says what users get for
it. If a count falls two steps below its budget, the test fails as well, so a change that removes something also lowers
the budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import pytest

from tests import proportion

LINES: Final = {
    "captures/.": 1_700,
    "captures/decode": 4_900,
    "captures/drawing": 700,
    "captures/files": 1_100,
    "captures/net": 1_950,
    "captures/pipeline": 15_250,
    "captures/spoil": 550,
    "captures/wireshark": 1_750,
    "docs/.": 250,
    "mqproto/.": 100,
    "mqproto/base": 400,
    "mqproto/bodies": 1_600,
    "mqproto/edge": 400,
    "mqproto/formatname": 700,
    "mqproto/manager": 4_300,
    "mqproto/messages": 300,
    "mqproto/neighbours": 2_000,
    "mqproto/queues": 1_100,
    "mqproto/routing": 350,
    "mqproto/security": 1_250,
    "mqproto/session": 750,
    "mqproto/testing": 750,
    "mqproto/transfer": 1_400,
    "mqproto/turn": 1_050,
    "mqproto/wire": 4_250,
    "pyspark_mqproto/.": 50,
    "simulator/.": 0,
    "simulator/base": 2_450,
    "simulator/cli": 2_650,
    "simulator/client": 2_950,
    "simulator/command": 2_500,
    "simulator/console": 2_400,
    "simulator/edges": 7_650,
    "simulator/fuzz": 5_650,
    "simulator/node": 4_100,
    "simulator/replay": 1_500,
    "simulator/rig": 4_100,
    "simulator/security": 400,
    "simulator/storage": 4_550,
    "simulator/testing": 300,
    "simulator/topology": 1_800,
    "simulator/world": 6_350,
    "tests/.": 5_050,
    "tests/base": 350,
    "tests/bench": 3_900,
    "tests/bodies": 1_300,
    "tests/captures": 21_300,
    "tests/edge": 550,
    "tests/formatname": 500,
    "tests/letter": 4_500,
    "tests/manager": 7_150,
    "tests/messages": 750,
    "tests/neighbours": 2_400,
    "tests/plants": 1_500,
    "tests/queues": 1_550,
    "tests/routing": 400,
    "tests/security": 2_000,
    "tests/session": 1_150,
    "tests/simulator": 45_400,
    "tests/testing": 100,
    "tests/transfer": 2_900,
    "tests/turn": 700,
    "tests/wire": 3_100,
}
"""The budget of each folder of the second level, in lines of code."""
TOTALS: Final = {
    "product": 97_500,
    "tests": 106_500,
    "both": 203_500,
}
CLASSES: Final = {
    # A face: each of its methods calls the part that does the work.
    "mqproto/manager/queuemanager.py:QueueManager": 335,
}
"""The classes of more than 300 lines of code, each with its number of lines and the reason why it is not split.

No class may be added.
"""
FUNCTIONS: Final = {
    # The stages of one run in their order; each takes the tables of those before it.
    "captures/pipeline/run/job.py:analyse": 103,
    # An argument for each field that a sender chooses, and the same fields again where the headers are made.
    "mqproto/wire/messages.py:user_message": 84,
    # These two declare a command: their signatures are what a user may type, and take 77 and 48 lines.
    "simulator/cli/commands.py:send": 121,
    "simulator/cli/node.py:node": 79,
}
"""The functions of more than 60 lines of code, each with its number of lines and the reason why it is not split.

No function may be added.
"""
COUNTS: Final = {
    "options of all commands": 325,
    "class names that occur in more than one module": 59,
    "functions that are more complex than 15": 17,
    "functions of more than 10 arguments": 10,
    "lambdas that only call a function": 4,
    "processes with a preexec_fn": 3,
    "loop variables that are set anew": 9,
}
"""The budgets for counts that should stay low."""
WORDS: Final = {
    ".github/CONTRIBUTING.md": 500,
    ".github/SECURITY.md": 600,
    "CHANGELOG.md": 800,
    "README.md": 800,
    "captures/README.md": 400,
    "captures/pipeline/README.md": 400,
    "docs": 200,
    "docs/how-to": 27_700,
    "docs/reference": 3_400,
    "docs/start": 800,
    "docs/why": 5_100,
    "mqproto/README.md": 400,
    "mqproto/security/README.md": 300,
    "mqproto/session/README.md": 400,
    "mqproto/testing/README.md": 100,
    "mqproto/wire/README.md": 300,
    "simulator/README.md": 400,
    "simulator/base/traces/README.md": 100,
    "simulator/cli/service/README.md": 100,
    "simulator/fuzz/README.md": 300,
    "simulator/node/README.md": 100,
    "simulator/node/metrics/README.md": 100,
    "tests/README.md": 300,
    "tests/captures/truth/README.md": 300,
    "tests/letter/README.md": 500,
}
"""The budget of each document, in words."""

LINE_STEP: Final = 50
WORD_STEP: Final = 100


def breaches(measured: Mapping[str, int], budgets: Mapping[str, int], step: int = 1) -> list[str]:
    """Return the counts that exceed their budgets, that have no budget, or whose budget should be lowered."""
    found = []
    for name, count in measured.items():
        budget = budgets.get(name)
        lower = -(-count // step) * step
        if budget is None:
            found.append(
                f"{name} is new with {count:,}: what does it replace? If it has to be, its budget is {lower}"
            )
        elif count > budget:
            found.append(
                f"{name} has {count:,}, {count - budget:,} over its budget of {budget:,}: take something away, or "
                f"raise the budget to {lower} and say in the commit's body what users get for it"
            )
        elif budget - count >= 2 * step:
            found.append(f"{name} has {count:,}: lower its budget of {budget:,} to {lower}")
    found += [f"{name} is gone: delete its budget" for name in budgets if name not in measured]
    return found


def hold(measured: Mapping[str, int], budgets: Mapping[str, int], step: int = 1) -> None:
    """Fail with every breach, a line each."""
    assert not (found := breaches(measured, budgets, step)), "\n".join(["", *found])


def test_no_folder_has_more_code_than_its_budget() -> None:
    hold(proportion.code_by_folder(), LINES, LINE_STEP)


def test_product_and_tests_together_have_no_more_code_than_their_budget() -> None:
    hold(proportion.totals(), TOTALS, 10 * LINE_STEP)


def test_no_class_grows_beyond_300_lines_of_code_and_no_function_beyond_60() -> None:
    hold(proportion.large_classes(), CLASSES)
    hold(proportion.long_functions(), FUNCTIONS)


def test_there_are_no_more_options_shared_names_and_intricate_functions() -> None:
    hold(proportion.counts(), COUNTS)


def test_no_document_has_more_words_than_its_budget() -> None:
    hold(proportion.words(), WORDS, WORD_STEP)


# The brake itself


def test_what_is_over_its_budget_is_told_by_how_much() -> None:
    (told,) = breaches({"mqproto/wire": 1_001}, {"mqproto/wire": 1_000}, LINE_STEP)
    assert told.startswith("mqproto/wire has 1,001, 1 over its budget of 1,000: take something away")
    assert "raise the budget to 1050" in told


def test_a_budget_is_lowered_when_something_went() -> None:
    assert breaches({"mqproto/wire": 901}, {"mqproto/wire": 1_000}, LINE_STEP) == []
    assert breaches({"mqproto/wire": 900}, {"mqproto/wire": 1_000}, LINE_STEP) == [
        "mqproto/wire has 900: lower its budget of 1,000 to 900"
    ]


def test_what_is_new_needs_a_budget_and_what_is_gone_needs_none() -> None:
    assert breaches({"docs/new.md": 10}, {"docs/old.md": 20}, WORD_STEP) == [
        "docs/new.md is new with 10: what does it replace? If it has to be, its budget is 100",
        "docs/old.md is gone: delete its budget",
    ]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a checkout whose only file is a module of the product."""
    module = tmp_path / "simulator" / "planted" / "module.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(proportion, "ROOT", tmp_path)
    monkeypatch.setattr(proportion, "files", lambda: ("simulator/planted/module.py",))
    proportion.measured.cache_clear()
    yield module
    proportion.measured.cache_clear()


@pytest.mark.parametrize(("lines", "found"), [(300, {}), (301, {"simulator/planted/module.py:Planted": 301})])
def test_a_class_may_have_300_lines_of_code(planted: Path, lines: int, found: dict[str, int]) -> None:
    planted.write_text(
        "class Planted:\n" + '    """Says."""\n\n    # A reason.\n' + "    pass\n" * (lines - 1)
    )
    assert proportion.large_classes() == found


@pytest.mark.parametrize(("lines", "found"), [(60, {}), (61, {"simulator/planted/module.py:planted": 61})])
def test_a_function_may_have_60_lines_of_code(planted: Path, lines: int, found: dict[str, int]) -> None:
    planted.write_text("async def planted():\n    # A reason.\n\n" + "    pass\n" * (lines - 1))
    assert proportion.long_functions() == found


def test_code_is_counted_without_its_docstrings_comments_and_blank_lines(planted: Path) -> None:
    planted.write_text(
        '"""Of the module,\nin two lines."""\n\n# A comment.\nLIMIT = 3  # Another.\n"""Of the limit."""\n'
        'def function() -> str:\n    """Of the function."""\n    return """A value\nof two lines"""\n'
    )
    assert proportion.code_by_folder() == {"simulator/planted": 4}


def test_every_option_of_a_command_counts() -> None:
    command, longer = click.Command("same"), click.Command("same", params=[click.Option(["--more"])])
    assert (proportion.options_of(command), proportion.options_of(longer)) == (0, 1)
