"""`mqproto top`, which shows the current state of nodes, sessions and queues in a terminal.

At each update, it sends the same request as `mqproto explain`, to all nodes at the same time. Rates are computed from
two successive answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from mqproto.base.foreign import shown
from mqproto.base.words import brief, duration
from mqproto.manager.status import NodeStatus
from mqproto.manager.whereabouts import Spot
from mqproto.simulator.base.program.again import asked_to_end
from mqproto.simulator.base.program.output import run_task
from mqproto.simulator.base.screen import wide_console
from mqproto.simulator.client import oversee
from mqproto.simulator.client.explain import is_kept
from mqproto.simulator.client.live import Away, ask_all
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.directory import known_as
from mqproto.transfer.outgoing import ORDER_SUFFIX

if TYPE_CHECKING:
    from mqproto.simulator.client import Client
    from mqproto.simulator.node.control import Explanation
    from mqproto.simulator.topology.places import Place

NARROWEST: Final = 64
"""The minimum width of the screen in columns; on a narrower terminal, lines are cut."""
CELL: Final = 8
STATE: Final = 13


@dataclass(frozen=True, slots=True)
class TopRow:
    """A line of the screen: a name that fills the remaining width, then figures and a word.

    Reasons may follow on the next line.
    """

    name: str
    cells: tuple[str, ...] = ()
    state: str = ""
    why: str = ""
    style: str = ""

    def lines(self, columns: int, cells: int) -> Iterator[Text]:
        """Yield the lines of this row, at most this wide.

        Names that come from outside are shown as plain text.
        """
        room = max(columns - CELL * cells - STATE - 2, CELL)
        line = Text(_fitted(self.name, room), self.style, no_wrap=True)
        for cell in self.cells or ("",) * cells:
            line.append(cell.rjust(CELL))
        line.append(f"  {self.state}")
        line.rstrip()
        yield line
        if self.why:
            yield Text(f"  {_fitted(self.why, columns - 2).rstrip()}", "dim", no_wrap=True)


@dataclass(frozen=True, slots=True)
class ScreenSection:
    """Rows under one heading."""

    heading: TopRow
    rows: list[TopRow] = field(default_factory=list)

    @property
    def width(self) -> int:
        """The number of columns in which every row fits completely."""
        cells = CELL * len(self.heading.cells) + STATE + 2
        names = (cell_len(shown(row.name)) + cells for row in self.rows)
        return max((*names, *(cell_len(shown(row.why)) + 2 for row in self.rows)), default=0)

    def blocks(self, columns: int) -> Iterator[list[Text]]:
        """Yield the lines of each row."""
        yield from (list(row.lines(columns, len(self.heading.cells))) for row in self.rows)


@dataclass(frozen=True, slots=True)
class NodesLook:
    """The answers of all nodes, and the time at which they arrived, on trio's clock."""

    found: Mapping[str, Explanation | Away]
    at_s: float

    def of(self, node: str) -> NodeStatus | None:
        one = self.found.get(node)
        return one.status if one else None


def run(place: Place, node: str | None, *, once: bool, interval_s: float) -> NodesLook | None:
    """Show nodes until SIGINT or SIGTERM; print them only once if `once` is set or the output is a pipe.

    If the nodes were printed once, return their answers; otherwise return None.
    """
    return run_task(partial(_watch, place, node, wide_console(markup=False), interval_s, once=once))


async def _watch(
    place: Place, node: str | None, console: Console, interval_s: float, *, once: bool
) -> NodesLook | None:
    before = await _look(place, node)
    if once or not console.is_terminal:
        # Rates need two looks, and a rate of nothing would be none.
        if any(before.found.values()):
            await trio.sleep(interval_s)
            now = await _look(place, node)
            console.print(drawn(sections(place.topology, now, before), console.width), soft_wrap=True)
            return now
        return before
    with asked_to_end() as signals, Live(console=console, screen=True, auto_refresh=False) as live:
        async with trio.open_nursery() as nursery:

            async def show() -> None:
                last, now = None, before
                while True:
                    title = TopRow(
                        f"{place.topology.name}, every {interval_s:g} s until Ctrl-C", style="bold"
                    )
                    drawing = sections(place.topology, now, last)
                    live.update(drawn(drawing, console.width, console.height, title), refresh=True)
                    await trio.sleep(interval_s)
                    last, now = now, await _look(place, node)

            nursery.start_soon(show)
            async for _ in signals:
                break
            nursery.cancel_scope.cancel()
    return None


async def _look(place: Place, node: str | None) -> NodesLook:
    """Ask each node, or only `node`, about all its queues and sessions, and each queue's oldest message."""

    async def ask(client: Client) -> Explanation:
        explained = await client.explain(limit=1)
        explained.status = await client.queues()  # Which has queues where nothing waits as well.
        return explained

    return NodesLook(await ask_all(place, ask, node), trio.current_time())


# What is shown


def sections(topology: Topology, now: NodesLook, before: NodesLook | None) -> list[ScreenSection]:
    """Return the sections for nodes, sessions and queues.

    Args:
        before: the previous look, from which rates are computed.
    """
    nodes = ScreenSection(
        TopRow("node", ("sessions", "in/s", "fwd/s", "resent", "dropped"), "stored", style="bold")
    )
    sessions = ScreenSection(TopRow("session", ("window", "unacked", "resent", "ack"), "state", style="bold"))
    queues = ScreenSection(TopRow("queue", ("waiting", "oldest", "in/s", "out/s"), "state", style="bold"))
    for name, one in now.found.items():
        if isinstance(one, Away):
            nodes.rows.append(TopRow(name, state=str(one), style="red"))
            continue
        span = _Span(one.status, before.of(name) if before else None, now.at_s - before.at_s if before else 0)
        nodes.rows.append(_node(name, span))
        sessions.rows.extend(_sessions(topology, name, one.status))
        queues.rows.extend(_local(name, span))
        queues.rows.extend(_outgoing(topology, name, one, span))
    return [nodes, sessions, queues]


def drawn(
    drawing: list[ScreenSection], columns: int, height: int | None = None, title: TopRow | None = None
) -> Text:
    """Return the whole screen, or else the first rows of each section, and how many rows are left out.

    Args:
        height: the number of lines for which there is room; None if there is no limit.
    """
    limit_columns = columns
    columns = max(min(columns, max(section.width for section in drawing)), NARROWEST)
    lines = list(title.lines(columns, 0)) if title else []
    # Each section has a heading, an empty line before it, and perhaps one that says what is left out.
    left = None if height is None else height - len(lines) - 3 * len(drawing)
    for place, section in enumerate(drawing):
        blocks = list(section.blocks(columns))
        limit = None if left is None else max(left // (len(drawing) - place), 1)
        kept = [line for block in _first(blocks, limit) for line in block]
        count = len(_first(blocks, limit))
        lines += [Text()] * bool(lines)
        lines += [*section.heading.lines(columns, len(section.heading.cells)), *kept]
        if count < len(blocks):
            lines.append(Text(f"and {len(blocks) - count:,} more", "dim"))
        elif not blocks:
            lines.append(Text("none", "dim"))
        left = None if left is None else left - len(kept)
    for line in lines:
        line.truncate(limit_columns)
    return Text("\n").join(lines)


def _first(blocks: list[list[Text]], limit: int | None) -> list[list[Text]]:
    """Return the first blocks, as many as fit into `limit` lines."""
    kept = 0
    for count, block in enumerate(blocks):
        kept += len(block)
        if limit is not None and kept > limit:
            return blocks[:count]
    return blocks


class _Span:
    """Two looks at one node, or a single look, which yields no rates."""

    def __init__(self, status: NodeStatus, before: NodeStatus | None, passed_s: float) -> None:
        self.status = status
        self._passed_s = passed_s
        self.was_local = {one.name: one for one in before.local} if before else {}
        self.was_outgoing = {one.name: one for one in before.outgoing} if before else {}
        self.forwarded_before = before.forwarded if before else None

    def rate(self, now: int, before: int | None) -> str:
        """Return a rate per second; empty if there is no earlier count.

        After a restart, it is 0 instead of negative.
        """
        if before is None or not self._passed_s:
            return ""
        per_s = max(now - before, 0) / self._passed_s
        return f"{per_s:.1f}" if 0 < per_s < 10 else _count(round(per_s))


def _node(name: str, span: _Span) -> TopRow:
    status = span.status
    came = sum(one.entered for one in status.local)
    came_before = sum(one.entered for one in span.was_local.values()) if span.was_local else None
    cells = (
        _count(status.sessions_open),
        span.rate(came, came_before),
        span.rate(status.forwarded, span.forwarded_before),
        _count(status.resent),
        _count(status.duplicates),
    )
    if status.disk_is_full:
        return TopRow(name, cells, "disk is full", style="red")
    return TopRow(name, cells, f"{status.stored_bytes / 2**20:,.1f} MiB")


def _sessions(topology: Topology, name: str, status: NodeStatus) -> Iterator[TopRow]:
    """Yield a row for each open session, and for each next hop of an outgoing queue without a session.

    A session that is still being opened counts as none.
    """
    resent: Counter[str] = Counter()
    for queue in status.outgoing:
        resent[queue.next_manager] += queue.resent
    for session in status.sessions:
        cells = (
            _count(session.window),
            _count(session.unacknowledged),
            _count(resent[session.manager]),
            brief(session.acknowledged_s),
        )
        yield TopRow(f"{name} to {topology.manager_name(session.manager) or session.host}", cells, "open")
    told = set()
    for queue in status.outgoing:
        hop = oversee.next_hop(topology, queue)
        if queue.state in ("connecting", "disconnected") and hop and hop not in told:
            told.add(hop)
            cells = ("", "", _count(resent[queue.next_manager]), "")
            yield TopRow(f"{name} to {hop}", cells, queue.state, style="red" if queue.waiting else "")


def _local(name: str, span: _Span) -> Iterator[TopRow]:
    status = span.status
    for queue in status.local:
        if is_kept(queue.name) and not queue.waiting:
            continue
        before = span.was_local.get(queue.name)
        cells = (
            _count(queue.waiting),
            "" if queue.oldest_s is None else _age(status.utc_s - queue.oldest_s),
            span.rate(queue.entered, before.entered if before else None),
            span.rate(queue.left, before.left if before else None),
        )
        state = (
            "being emptied" if queue.purging else f"{_count(queue.consumers)} receive" * bool(queue.consumers)
        )
        gaps = [
            f"{one.held:,} held: number {first:,}{f' to {last:,}' * (first != last)} of {one.name} has not come"
            for one in status.incoming
            if one.queue == queue.name and one.missing
            for first, last in [one.missing]
        ]
        yield TopRow(f"{name}\\{queue.name}", cells, state, "; ".join(gaps))


def _outgoing(topology: Topology, name: str, one: Explanation, span: _Span) -> Iterator[TopRow]:
    status = span.status
    oldest = {
        message.queue: message.sent_s
        for message in reversed(one.messages)
        if message.spot is not Spot.AWAITING_FINAL_ACK
    }
    for queue in status.outgoing:
        if queue.name.endswith(ORDER_SUFFIX) and not queue.waiting:
            continue
        came = left = ""
        if (before := span.was_outgoing.get(queue.name)) is not None and queue.sequence:
            came = span.rate(queue.next_number, before.next_number)
            left = span.rate(queue.last_ack, before.last_ack)
        sent_s = oldest.get(queue.name)
        age = _age(status.utc_s - sent_s) if sent_s is not None and queue.waiting else ""
        why = oversee.why_it_waits(queue, status) if queue.waiting or queue.state == "on hold" else ""
        style = "red" if queue.waiting and queue.state not in ("connected", "connecting") else ""
        yield TopRow(
            f"{name} to {known_as(topology, queue.name)}",
            (_count(queue.waiting), age, came, left),
            queue.state,
            why,
            style,
        )


def _age(seconds: float) -> str:
    """Return a duration in one unit: `42 s`, `3 min`."""
    return " ".join(duration(max(int(seconds), 0)).split()[:2])


def _count(number: int) -> str:
    return f"{number:,}" if number < 1_000_000 else f"{number / 1e6:,.1f} M"


def _fitted(text: str, columns: int) -> str:
    """Fit a text into one line of this many columns; one that is too long is cut, and ends in an ellipsis."""
    text = shown(text)
    if cell_len(text) > columns:
        text = f"{set_cell_size(text, columns - 1).rstrip()}\N{HORIZONTAL ELLIPSIS}"
    return set_cell_size(text, columns)
