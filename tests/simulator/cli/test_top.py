from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from mqproto.manager.status import IncomingStatus, LocalStatus, NodeStatus
from mqproto.manager.whereabouts import MessageStatus, Spot
from mqproto.neighbours.peerstatus import SessionStatus
from mqproto.simulator.cli import top as command
from mqproto.simulator.cli.cli import DONE, FINDING
from mqproto.simulator.cli.top import NodesLook, drawn, sections
from mqproto.simulator.client.live import Away
from mqproto.simulator.node.control import Explanation
from mqproto.simulator.topology.places import Place
from mqproto.wire.guid import guid_text
from tests.simulator.statuses import ORDERS, SEQUENCE, THREE
from tests.simulator.typed import COMMAND, TIMEOUT_S, in_process, interruptible

INTERMEDIATE = guid_text(THREE.nodes["intermediate"].guid)
SENT = replace(
    SEQUENCE,
    state="disconnected",
    last_failure="connection refused by 127.0.0.2:1801",
    last_ack=7,
    resent=12,
    resend_at_ms=None,
    next_manager="",
    next_number=10,
)
NOTES = LocalStatus("notes", False, 5, 0, 0, entered=100, left=95, oldest_s=940)
GAP = IncomingStatus("notes", "NAME", "GUID", 4, (1, 1), 0, 0, 2, 20, (5, 6))
STATUS = NodeStatus(
    local=[NOTES],
    outgoing=[SENT],
    incoming=[GAP],
    sessions=[SessionStatus("127.0.0.2", INTERMEDIATE, 64, 17, 1, 0.0123)],
    sessions_open=1,
    forwarded=50,
    utc_s=1_000,
)
OLDEST = MessageStatus(Spot.UNSENT, ORDERS, "GUID", 1, sent_s=800)


def look(status: NodeStatus | None, at_s: float = 0.0) -> NodesLook:
    return NodesLook({"sender": Explanation(status, [OLDEST]) if status else Away()}, at_s)


def lines(
    now: NodesLook, before: NodesLook | None = None, columns: int = 80, height: int | None = None
) -> list[str]:
    return drawn(sections(THREE, now, before), columns, height).plain.splitlines()


def row(told: list[str], start: str) -> str:
    return next(" ".join(line.split()) for line in told if line.startswith(start))


def test_what_came_and_went_between_two_looks_is_a_rate() -> None:
    later = replace(
        STATUS,
        local=[replace(NOTES, entered=120, left=115)],
        outgoing=[replace(SENT, next_number=13, last_ack=8)],
        forwarded=2_050,
    )
    told = lines(look(later, 2.0), look(STATUS))
    assert row(told, r"sender\notes") == r"sender\notes 5 1 min 10 10"
    assert (
        row(told, r"sender to destination\orders")
        == r"sender to destination\orders 3 3 min 1.5 0.5 disconnected"
    )
    assert row(told, "sender  ") == "sender 1 10 1,000 0 0 0.0 MiB"


def test_one_look_has_no_rates_and_a_node_that_began_anew_has_none_below_nothing() -> None:
    assert row(lines(look(STATUS)), r"sender\notes") == r"sender\notes 5 1 min"
    anew = replace(STATUS, local=[replace(NOTES, entered=1, left=0)])
    assert row(lines(look(anew, 1.0), look(STATUS)), r"sender\notes") == r"sender\notes 5 1 min 0 0"
    assert row(lines(look(STATUS, 1.0), look(None)), r"sender\notes") == r"sender\notes 5 1 min"


def test_a_session_says_how_long_its_neighbour_takes_to_acknowledge() -> None:
    assert row(lines(look(STATUS)), "sender to intermediate") == "sender to intermediate 64 17 0 12 ms open"


def test_why_it_waits_stands_below_what_waits() -> None:
    told = lines(look(STATUS))
    place = told.index(next(line for line in told if line.startswith("sender to destination")))
    assert told[place + 1] == "  connection refused by 127.0.0.2:1801"
    assert "  2 held: number 5 to 6 of NAME has not come" in told


def test_a_node_that_does_not_run_is_said_and_no_row_of_it_is_made_up() -> None:
    told = lines(look(None))
    assert row(told, "sender") == "sender not running"
    assert told.count("none") == 2


@given(
    name=st.text(max_size=150),
    why=st.text(max_size=150),
    columns=st.integers(40, 200),
    queues=st.integers(0, 20),
    height=st.integers(24, 60),
)
def test_it_fits_whatever_strangers_call_their_queues(
    name: str, why: str, columns: int, queues: int, height: int
) -> None:
    strange = replace(SENT, name=name, last_failure=why)
    drawing = sections(THREE, look(replace(STATUS, outgoing=[strange] * queues)), None)
    told = drawn(drawing, columns, height)
    assert len(told.plain.split("\n")) <= height
    assert all(line.isprintable() and cell_len(line) <= columns for line in told.plain.split("\n"))
    assert {span.style for span in told.spans} <= {"", "bold", "dim", "red"}, "nothing is markup"


def test_where_no_node_runs_it_says_how_to_run_them(tmp_path: Path) -> None:
    done = in_process("top", "-d", tmp_path)
    assert (done.status, done.out) == (FINDING, "")
    assert done.complaint.endswith(f"start them: mqproto run --directory {tmp_path}")


def test_in_a_pipe_ctrl_c_ends_it_before_it_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def looked(place: Place, node: str | None) -> NodesLook:
        nonlocal looks
        looks += 1
        signal.raise_signal(signal.SIGINT)
        return look(STATUS)

    monkeypatch.setattr(command, "_look", looked)
    with interruptible(), pytest.raises(KeyboardInterrupt):
        command.run(Place(THREE, tmp_path), None, once=True, interval_s=3)
    assert looks == 1


def test_on_a_terminal_it_goes_on_until_ctrl_c(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [*COMMAND, "top", "-d", str(tmp_path), "--interval", "0.1"]
    with subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.PIPE, env=os.environ | {"TERM": "xterm"}
    ) as top:
        os.close(theirs)
        said = b""
        while said.count(b"not running") < 3 * len(THREE.nodes):  # It is drawn three times.
            assert select.select([ours], [], [], TIMEOUT_S)[0], said
            said += os.read(ours, 65_536)
        top.send_signal(signal.SIGINT)
        assert top.stderr is not None
        while select.select([ours], [], [], TIMEOUT_S)[0]:
            try:
                said += os.read(ours, 65_536)
            except OSError:  # Linux has an error at the end of a terminal.
                break
        assert (top.wait(TIMEOUT_S), top.stderr.read()) == (DONE, b"")
    os.close(ours)
    assert said.endswith(b"\x1b[?25h\x1b[?1049l"), "the screen and the cursor are as they were"
    assert re.search(rb"three-node, every 0.1 s until Ctrl-C", said)
