"""Breaks and mends nodes and links of a running `mqproto run` by hand, from another terminal.

`mqproto run` listens on a Unix domain socket that only its user can reach, next to the sockets of its nodes. Each
connection carries one order: JSON up to the end of the stream, and JSON in reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
import trio

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.base.words import counted
from mqproto.simulator.rig.links import BreakableLink, Links
from mqproto.simulator.rig.supervisor import NodeError, Supervisor
from mqproto.simulator.topology import Action, TopologyError, places
from mqproto.simulator.topology.places import Place

BACKLOG: Final = 16
LIMIT_BYTES: Final = 64 * 1024
SLOW_S: Final = 0.3
"""The time, in seconds, by which a slow link delays data in each direction."""
PATIENCE_S: Final = 10
"""The time, in seconds, that a client may take to send its order."""
LOOK_PATIENCE_S: Final = 1.0
"""The time, in seconds, that the run may take to report which links are broken."""


class Deed(StrEnum):
    """The actions that an order may ask for."""

    KILL = "kill"
    RESTART = "restart"
    CUT = "cut"
    STALL = "stall"
    SLOW = "slow"
    MEND = "mend"
    LOOK = "look"
    """Do nothing. `Done.links` then says which links are broken."""


WORDS: Final = {Deed.CUT: "cut", Deed.STALL: "stalled", Deed.SLOW: "slow"}


class Order(msgspec.Struct):
    """An order for some nodes, for the link between two nodes, for all links of one node, or for all links."""

    deed: Deed
    nodes: list[str]


class Effect(msgspec.Struct):
    """The result for one node or link, and the arguments of `mqproto` that undo it."""

    text: str
    undone_by: str = ""

    def told(self, place: str = "") -> str:
        """Return the effect as one line.

        Args:
            place: the options that name the topology and the directory, if the command needs them.
        """
        return f"{self.text}; to undo: mqproto {self.undone_by}{place}" if self.undone_by else self.text


class BrokenLink(msgspec.Struct):
    """A broken link: its nodes, whether it is cut, stalled or slow, and the command that mends it."""

    nodes: list[str]
    state: str
    undone_by: str

    def told(self) -> str:
        """Return the link as one line."""
        return f"{'-'.join(self.nodes)} is {self.state} by hand; to undo: {self.undone_by}"


class Done(msgspec.Struct):
    """The answer to an order: the effects, and the failure if there is one.

    is_misuse: whether the order itself was wrong.
    lacks: the name that the run does not have, if that is the failure.
    links: the two nodes of each broken link, and the deed that broke it; None if links cannot be broken.
    """

    effects: list[Effect]
    failure: str = ""
    is_misuse: bool = False
    lacks: str = ""
    links: list[tuple[str, str, Deed]] | None = None

    def raise_failure(self) -> None:
        """Raise an error for the failure, if there is one.

        Raises:
            UsageError: the node or link does not exist.
            MqprotoError: a node does not start.
        """
        if self.lacks:
            raise TopologyError(self.failure, self.lacks)
        if self.failure:
            raise (UsageError if self.is_misuse else MqprotoError)(self.failure)


class Hands:
    """Breaks and mends the nodes and links of one run, through the run's socket or, from within its process, through
    `carry_out`.

    Args:
        links: the links of the run; None if they cannot be broken.
        tell: called with a line for each action.
    """

    def __init__(self, supervisor: Supervisor, links: Links | None, tell: Callable[[str], None]) -> None:
        self._supervisor = supervisor
        self._topology = supervisor.topology
        self._links = links
        self._tell = tell
        self._broken: dict[tuple[str, str], Deed] = {}

    @property
    def broken(self) -> Mapping[tuple[str, str], Deed]:
        """The links that are cut, stalled or slow, keyed by their two nodes, in the order of the topology."""
        return self._broken

    @property
    def down(self) -> list[str]:
        """The nodes that were killed by hand and not restarted."""
        return [name for name in self._topology.nodes if self._supervisor.is_put_down(name)]

    async def carry_out(self, deed: Deed, nodes: Sequence[str] = ()) -> Done:
        """Carry out a deed. If one of the nodes does not exist, do nothing. The answer contains any error.

        Args:
            nodes: for KILL and RESTART, the nodes; otherwise the two ends of a link, one node for all its links, or
                none for all links.
        """
        done = Done([])

        def note(effect: Effect) -> None:
            done.effects.append(effect)
            self._tell(effect.told())

        try:
            names = list(dict.fromkeys(self._topology.node_named(name).name for name in nodes))
            if deed is Deed.LOOK:
                pass  # Nothing has happened, so there is nothing to tell.
            elif deed in (*WORDS, Deed.MEND):
                for link in self._named(names):
                    note(self._mend(link) if deed is Deed.MEND else self._break(link, deed))
            elif not names:
                raise UsageError(f"{deed}: name a node")
            elif deed is Deed.KILL:
                for name in names:
                    note(await self._kill(name))
            else:
                failed = []
                for name in names:
                    try:
                        note(await self._restart(name))
                    except NodeError as failure:
                        failed.append(name)
                        note(Effect(f"{failure}; it is tried again"))
                done.failure = f"not running: {', '.join(failed)}" if failed else ""
        except UsageError as error:
            done.failure, done.is_misuse, done.lacks = str(error), True, getattr(error, "lacks", "")
        if self._links is not None:
            done.links = [(*ends, what) for ends, what in self._broken.items()]
        return done

    async def serve(
        self, path: Path, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve orders until this task is cancelled."""
        with places.listening(path, BACKLOG) as listener:
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listener))]
            task_status.started()  # Clients that connect from now on wait in the kernel.
            await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            async with stream:
                with trio.fail_after(PATIENCE_S):
                    order = await _read(stream)
                done = await self._obey(order)
                with trio.fail_after(PATIENCE_S):
                    await stream.send_all(msgspec.json.encode(done))
        except (trio.BrokenResourceError, trio.TooSlowError):
            return  # The client has gone; the run itself has told what was done.

    async def _obey(self, words: bytes) -> Done:
        try:
            order = msgspec.json.decode(words, type=Order)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return Done([], f"no order: {error}", is_misuse=True)
        return await self.carry_out(order.deed, order.nodes)

    async def _kill(self, name: str) -> Effect:
        pid = await self._supervisor.put_down(name)
        what = "did not run, and stays down" if pid is None else f"process {pid} was killed"
        return Effect(f"{name}: {what}", f"restart {name}")

    async def _restart(self, name: str) -> Effect:
        return Effect(f"{name}: runs, process {await self._supervisor.bring_up(name)}")

    def _named(self, names: list[str]) -> list[BreakableLink]:
        """Return the link between two nodes, all links of one node, or all links."""
        if self._links is None:
            raise UsageError(
                "this run has --direct or --capture, so no link can be broken; start it with --breakable"
            )
        links = self._links.links
        found = [link for link in links if set(names) <= {link.link.first, link.link.second}]
        if not found and names:
            there = ", ".join(map(str, links)) or "none"
            raise UsageError(f"no link joins {' and '.join(names)}; there is: {there}")
        return found

    def _break(self, link: BreakableLink, deed: Deed) -> Effect:
        ends = (link.link.first, link.link.second)
        if (before := self._broken.get(ends)) is deed:
            return Effect(f"{link} was {WORDS[deed]} before, and stays so", f"mend {' '.join(ends)}")
        if before is not None:
            link.restore()
        self._broken[ends] = deed
        if deed is Deed.SLOW:
            link.slow(SLOW_S)
            what = f"all that crosses it waits for {SLOW_S:g} s"
        else:
            reset = link.break_off(Action.STALL if deed is Deed.STALL else Action.CUT)
            what = "nothing crosses it and nothing is closed"
            if deed is Deed.CUT:
                what = f"{counted(reset, 'connection')} reset"
        return Effect(f"{link} is {WORDS[deed]}, {what}", f"mend {' '.join(ends)}")

    def _mend(self, link: BreakableLink) -> Effect:
        link.restore()
        was = self._broken.pop((link.link.first, link.link.second), None)
        return Effect(f"{link} is mended" if was else f"{link} was whole")


async def _read(stream: trio.SocketStream) -> bytes:
    """Read everything, or enough to see that it cannot be an order."""
    said = b""
    while len(said) <= LIMIT_BYTES and (part := await stream.receive_some()):
        said += part
    return said


async def asked(place: Place, deed: Deed, nodes: Sequence[str] = (), patience_s: float = math.inf) -> Done:
    """Send an order to the run of these nodes, and return its answer.

    Raises:
        MqprotoError: there is no run, or its answer was incomplete.
    """
    path = places.run_socket(place.directory, place.topology.name)
    answer = b""
    with trio.move_on_after(patience_s):
        try:
            stream = await trio.open_unix_socket(str(path))
        except (FileNotFoundError, ConnectionError):
            raise MqprotoError(
                f"no mqproto run has the nodes of {place.topology.name}; start it: mqproto run{place.again}"
            ) from None
        except OSError as error:
            raise MqprotoError(f"{path}: {error.strerror}") from None
        with suppress(trio.BrokenResourceError):
            async with stream:
                await stream.send_all(msgspec.json.encode(Order(deed, list(nodes))))
                await stream.send_eof()
                async for part in stream:
                    answer += part
    try:
        return msgspec.json.decode(answer, type=Done)
    except msgspec.MsgspecError:
        raise MqprotoError(
            "mqproto run has not answered, or not to the end; what it prints says whether this was done"
        ) from None


async def broken_now(place: Place) -> list[BrokenLink]:
    """Return the links broken by hand in the run of these nodes. The result is empty if no run answers."""
    try:
        done = await asked(place, Deed.LOOK, patience_s=LOOK_PATIENCE_S)
    except MqprotoError:
        return []
    return [
        BrokenLink([first, second], WORDS[deed], f"mqproto mend {first} {second}{place.again}")
        for first, second, deed in done.links or ()
    ]
