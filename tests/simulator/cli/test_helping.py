"""The help of every command: it fits a terminal of 80 columns, and mentions no Python types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import pytest

from mqproto.simulator.cli.cli import DONE, app, command_of, run_command
from mqproto.simulator.cli.helping import SUMMARY_LIMIT, TASKS
from tests.simulator.cli.test_choosing import NAMES

COLUMNS: Final = 80


@cache
def helps() -> dict[str, str]:
    """Return the help of a command and of all commands below it, keyed by the words of each command."""

    def those_of(command: Any, name: str, above: Any) -> Iterator[tuple[str, str]]:
        context = command.context_class(
            command, parent=above, info_name=name.split()[-1], terminal_width=COLUMNS
        )
        yield name, command.get_help(context)
        for each in getattr(command, "commands", {}).values():
            yield from those_of(each, f"{name} {each.name}", context)

    return dict(those_of(command_of(app), "mqproto", None))


def test_all_help_fits_80_columns() -> None:
    assert len(helps()) > 70
    assert [line for text in helps().values() for line in text.splitlines() if len(line) > COLUMNS] == []


def test_no_type_of_python_and_no_bracket_too_many_is_in_any_help() -> None:
    shown = {
        name: re.findall(r"<[a-z][\w |\[\]]*>|list\[|\[\[|\{[A-Z]", text) for name, text in helps().items()
    }
    assert {name: found for name, found in shown.items() if found} == {}


def test_each_value_has_a_name() -> None:
    for name, text in helps().items():
        for option in re.findall(r"^  (?:-\w, )?--[\w-]+ (?![ /])(\S+)", text, re.MULTILINE):
            assert re.search(r"[A-Z]{2}|^N$|\||^correlation$", option), (name, option)


def test_an_option_has_the_same_letter_in_every_command_that_has_it() -> None:
    words = ("topology", "directory", "node", "queue", "count", "message", "out")
    for name, text in helps().items():
        for option in re.findall(r"^  (?:-\w, )?--.*", text, re.MULTILINE):
            names, *_ = option.strip().split("  ")
            for word in words:
                assert not re.search(rf"--{word}\b(?!-)", names) or f"-{word[0]}, " in names, name


def test_summaries_are_whole() -> None:
    for name, text in helps().items():
        _, _, listed = text.partition("\nCommands:\n")
        assert not re.search(r"\.\.\.$", listed, re.MULTILINE), name
    for commands in TASKS.values():
        assert all(len(summary) <= SUMMARY_LIMIT for summary in commands.values())


def test_each_command_is_among_those_of_one_task(capfd: pytest.CaptureFixture[str]) -> None:
    listed = [name for commands in TASKS.values() for name in commands]
    assert sorted(listed) == sorted(NAMES)
    assert run_command(["--help"]) == DONE
    out = capfd.readouterr().out
    places = [out.index(f"\n{task}:\n") for task in TASKS]
    assert places == sorted(places)
    assert "Commands:" not in out
