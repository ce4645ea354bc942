"""A terminal shows the progress; a pipe gets nothing."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mqproto.captures.answers import Answers
from mqproto.simulator.replay import progress as module
from mqproto.simulator.replay.progress import progress
from mqproto.wire import Guid


@pytest.mark.parametrize("terminal", [True, False])
def test_the_messages_that_were_sent_are_counted_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    file, live = io.StringIO(), Answers()
    monkeypatch.setattr(
        module, "wide_console", lambda stderr: Console(file=file, force_terminal=terminal, width=100)
    )
    for message_id in range(3):
        live.expect((Guid(bytes(16)), message_id), None)
    with progress(live, 3):
        live.sent(0)
        live.sent(1)
        live.sent(1)
    assert ("2/3" in file.getvalue()) is terminal
    assert bool(file.getvalue()) is terminal
