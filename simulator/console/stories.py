"""Answers a page's questions: why messages are waiting, what happened to a message, and which messages failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

import trio

from mqproto.base.errors import UsageError
from mqproto.captures.drawing.ladder import Pause, Row, Rung, drawn
from mqproto.captures.drawing.shapes import as_json
from mqproto.simulator.client import oversee, story
from mqproto.simulator.client.explain import Explainer
from mqproto.simulator.client.story import MessageStory, Step
from mqproto.simulator.edges.operators.account import account_of, asked_after
from mqproto.simulator.edges.operators.failures import FailureFilter
from mqproto.simulator.edges.operators.reading import failed_in
from mqproto.simulator.rig.byhand import broken_now
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.directory import known_as
from mqproto.simulator.topology.places import Place, start_again
from mqproto.turn.waypoints import DROPS, Waypoint

FIRST: Final = 20
"""The number of messages of a queue that an explanation describes."""
FAILED_SHOWN: Final = 200
RUNGS: Final = 300
PAUSE_S: Final = 1.0
MESSAGE: Final = re.compile(r"^ *([0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}\\[0-9]+)\b")
"""A pattern that matches the beginning of a line about one message. Its group is the message's identifier."""
WRONG: Final = frozenset(
    {
        *DROPS,
        Waypoint.REFUSED,
        Waypoint.REJECTED,
        Waypoint.EXPIRED,
        Waypoint.PURGED,
        Waypoint.DEAD_LETTERED,
        Waypoint.NOT_KEPT,
    }
)
MEANINGS: Final = {
    "message": "it was sent",
    "session": "the next node acknowledged it",
    "acknowledgment": "its destination acknowledged it",
    "wrong": "it was refused or dropped, or expired",
    "handshake": "another step at one node",
}
"""The meanings of the colors in a message's ladder."""
AT_ONCE: Final = trio.CapacityLimiter(1)
"""The limit for the number of lookups of stories and failed messages at the same time.

It is 1: logs and stores may be large.
"""


async def explain(place: Place, asked: Mapping[str, str]) -> dict[str, Any]:
    """Explain why something is waiting, as `mqproto explain` does.

    Faults that users made come first, because many messages may follow.

    Raises:
        UsageError, FormatNameError: there is no such queue.
        NodeUnreachable: the queue's node is not running.
    """
    subject = asked.get("of", "")
    account, found = await asked_after(place, subject, FIRST, node=asked.get("node") or None)
    explainer = Explainer(place.topology, *start_again(place))
    lines = account.told(explainer) if account else oversee.explained(explainer, subject, found)
    by_hand = [link.told() for link in await broken_now(place)]
    return {"lines": [_line(line) for line in (*by_hand, *lines)]}


async def tell(place: Place, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the story of a message, as `mqproto history` does.

    Raises:
        UsageError: no message is named.
    """
    subject = asked.get("of", "").strip()
    if not subject:
        raise UsageError("name a message")
    async with AT_ONCE:
        account = await account_of(place, subject)
        logs = story.logs_in(place.directory)
        found = await trio.to_thread.run_sync(account.story, logs, place.topology)
    explainer = Explainer(place.topology, *start_again(place), in_full=False)
    steps = list(_steps(found, place.topology))
    notes = []
    if not found.has_waypoints:
        notes.append(
            "No log has the steps of messages: nodes write them after mqproto run --console or --waypoints."
        )
    if found.left_out:
        notes.append(f"{found.left_out:,} steps more are not shown.")
    return {
        "messages": sorted(found.messages),
        "began": f"since {story.clock(found.steps[0].time)} UTC" if found.steps else "",
        "steps": steps,
        "ladder": _ladder(found, steps, place.topology),
        "now": list(account.told(explainer)),
        "notes": notes,
    }


async def list_failed(place: Place, _: Mapping[str, str]) -> dict[str, Any]:
    """Return the failed messages, as `mqproto failed list` does."""
    async with AT_ONCE:
        failures, unknown = await trio.to_thread.run_sync(failed_in, place, FailureFilter())
    return {
        "count": len(failures),
        "failed": [failure.as_json() for failure in islice(failures, FAILED_SHOWN)],
        "notes": list(unknown.told()),
    }


def _line(text: str) -> dict[str, str]:
    found = MESSAGE.match(text)
    return {"text": text, "message": found[1] if found else ""}


def _steps(found: MessageStory, topology: Topology) -> Iterator[dict[str, Any]]:
    missing = found.missing()
    for place, step in enumerate(found.steps):
        yield {
            "since": f"{_since_s(found, step):.3f} s",
            "who": step.who,
            "said": story.said(found, step, topology),
            "missing": place in missing,
        }


def _since_s(found: MessageStory, step: Step) -> float:
    began, at = (datetime.fromisoformat(time) for time in (found.steps[0].time, step.time))
    return (at - began).total_seconds()


def _ladder(found: MessageStory, steps: list[dict[str, Any]], topology: Topology) -> dict[str, Any] | None:
    """Return a ladder diagram of a story's steps; None if there are none.

    Each rung connects the parties to a step.
    """
    if not found.steps:
        return None
    columns: dict[str, int] = {}
    rungs: list[Row] = []
    destination = ""
    before_s = 0.0
    for step, said in zip(found.steps[:RUNGS], steps, strict=False):
        if "queue" in step.facts:
            host, _, queue = known_as(topology, str(step.facts["queue"])).partition("\\")
            destination = destination or (host if queue else step.who)
        start, end = _ends(step, destination, topology)
        at_s = _since_s(found, step)
        if at_s - before_s > PAUSE_S:
            rungs.append(Pause(f"{at_s - before_s:,.1f} s later"))
        before_s = at_s
        from_place, to_place = (columns.setdefault(name, len(columns)) for name in (start, end))
        rungs.append(
            Rung(
                f"{at_s:.3f}", from_place,
                to_place, _style(step), step.event, [said["said"]], again=step.event == Waypoint.RESENT
            )
        )  # fmt: skip
    more = len(found.steps) - RUNGS
    left_out = f"{more:,} steps more are not drawn" if more > 0 else ""
    drawing = drawn(list(columns), rungs, left_out=left_out, meanings=MEANINGS)
    return {"shape": as_json(drawing.shape), "size": [drawing.width, drawing.height]}


def _ends(step: Step, destination: str, topology: Topology) -> tuple[str, str]:
    """Return the sender and the receiver of a step; both are the same if the step happens in one place."""
    peer = known_as(topology, str(step.facts.get("manager", step.facts.get("peer", ""))))
    if peer and step.event in (Waypoint.SENT, Waypoint.RESENT):
        return step.who, peer
    if peer and step.event == Waypoint.SESSION_ACKNOWLEDGED:
        return peer, step.who
    if destination and step.event in (Waypoint.ORDER_ACKNOWLEDGED, Waypoint.FINAL_ACKNOWLEDGED):
        return destination, step.who
    return step.who, step.who


def _style(step: Step) -> str:
    if step.event in WRONG:
        return "wrong"
    if step.event == Waypoint.SESSION_ACKNOWLEDGED:
        return "session"
    if step.event in (Waypoint.ORDER_ACKNOWLEDGED, Waypoint.FINAL_ACKNOWLEDGED):
        return "acknowledgment"
    return "message" if step.event in (Waypoint.SENT, Waypoint.RESENT) else "handshake"
