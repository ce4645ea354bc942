"""A command that is built alone is the same as one that is built together with all others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqproto.simulator.cli.choosing import only
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE, app, command_named, command_of, run_command

NAMES = [
    *(info.name or str(getattr(info.callback, "__name__", "")) for info in app.registered_commands),
    *(str(info.name) for info in app.registered_groups),
]


def test_each_has_the_same_help_alone_as_among_all(capfd: pytest.CaptureFixture[str]) -> None:
    everything = command_of(app)
    for name in NAMES:
        assert run_command([name, "--help"]) == DONE
        alone = capfd.readouterr().out
        everything([name, "--help"], prog_name="mqproto", standalone_mode=False)
        assert alone == capfd.readouterr().out
        assert len(only(app, name).registered_commands + only(app, name).registered_groups) == 1
    assert len(NAMES) > 30


def test_one_that_there_is_not_is_told_from_all(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sned", "q"]) == MISUSE
    assert "Did you mean 'send'" in capfd.readouterr().err


def test_what_was_made_once_serves_again_and_knows_nothing_of_the_time_before(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert command_named("decode") is command_named("decode")
    assert run_command(["decode", "123"]) == MISUSE
    first = capfd.readouterr()
    assert run_command(["decode", "123", "--json"]) == MISUSE
    capfd.readouterr()
    assert run_command(["decode", "123"]) == MISUSE
    assert capfd.readouterr() == first


def test_options_of_mqproto_itself_may_stand_on_either_side_of_a_command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here = str(tmp_path)
    for typed in (
        ["queues", "--json", "-t", "pair", "-d", here],
        ["-t", "pair", "-d", here, "--json", "queues"],
        ["--json", "-t", "demo", "queues", "-t", "pair", "-d", here],  # What is typed later counts.
        ["-d", here, "--json", "peers", "show", "-t", "pair"],
    ):
        assert run_command(typed) == FINDING
        names = [node["node"] for node in json.loads(capfd.readouterr().out)]
        assert names == ["sender", "destination"]
