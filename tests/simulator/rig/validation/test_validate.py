"""The scenarios of the documents, run for real; the others are run by `make validate`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mqproto.simulator.rig.validation import ends
from mqproto.simulator.rig.validation.scenario import load, shipped
from tests.simulator.typed import in_process

pytestmark = pytest.mark.usefixtures("forked_programs")

SHORT = ("consumer-fails", "trigger-dies")

WRONG = """
title = "A consumer that accepts is not called twice"
heading = "Test Project"
messages = 1
via = "client"

[expect]
attempted = 2
committed = 1
"""


def test_each_stage_is_reached_as_often_as_the_documents_say(tmp_path: Path) -> None:
    """From "Test Project": "how many times it got read from the queue, and if it reached its final destination"."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(WRONG)
    done = in_process("validate", *SHORT, wrong, "--json")
    outcomes = {outcome["scenario"]: outcome for outcome in json.loads(done.out)}
    for name in SHORT:
        assert (outcomes[name]["broken"], outcomes[name]["trouble"]) == ([], ""), outcomes[name]
    broken = outcomes[str(wrong)]
    assert (broken["broken"], broken["counts"]["attempted"]) == (["attempted"], 1)
    assert done.status == 1
    logs = Path(broken["logs"])
    assert (logs / "destination-trigger.log").exists()
    shutil.rmtree(logs)


def test_the_list_has_every_scenario_with_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    done = in_process("validate", "--list")
    assert done.status == 0
    lines = [f"{name}: {load(name).title} ({load(name).heading})" for name in shipped()]
    lines.append(f"{ends.NAME}: {ends.TITLE} ({ends.HEADING})")
    assert done.out.splitlines() == lines
