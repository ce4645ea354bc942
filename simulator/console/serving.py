"""A running console: its address, its token, and the parts that answer requests."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import MqprotoError, UsageError
from mqproto.simulator.base.http.server import Server
from mqproto.simulator.base.log import LogLines, node_log
from mqproto.simulator.base.sockets import listen
from mqproto.simulator.console import stories
from mqproto.simulator.console.deeds import Deeds
from mqproto.simulator.console.feed import Feed, event
from mqproto.simulator.console.front import LIMITS, Backstage, Front, Question, faulty
from mqproto.simulator.console.guard import ConsoleGuard, check_address
from mqproto.simulator.console.routemap import key_of
from mqproto.simulator.console.state import State
from mqproto.simulator.console.traffic import ConsoleTraffic
from mqproto.simulator.console.watch import NodeWatch, Sample
from mqproto.simulator.edges.gateway.tokens import TokenFile, Tokens
from mqproto.simulator.rig.byhand import Deed, asked
from mqproto.simulator.topology.places import Place

HOST: Final = "127.0.0.1"
PORT: Final = 9_170
"""The default port of a console. If it is not available, the system chooses another port."""
LOOK_PATIENCE_S: Final = 0.3
"""The number of seconds that a run may take to report which links are broken."""
ADVICE: Final = "name another with --listen, or leave that out"


async def serve_console(
    place: Place,
    log: LogLines,
    address: tuple[str, int] | None = None,
    tokens: Path | None = None,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled.

    The value passed to `task_status` is the address to open, which contains the token.

    Args:
        log: takes the console's problems and the operations of its users.
        address: where to listen; None for the default port or, if that is not available, for a port that the system
            chooses.
        tokens: a file of `mqproto tokens`; users whose token has the role `read` may only look.

    Raises:
        UsageError: the console cannot be served at this address.
    """
    lines = node_log(log, "console")
    guard = ConsoleGuard(TokenFile(tokens, str, lines) if tokens else None)
    state, feed = State(place), Feed()

    async def tell(samples: Mapping[str, Sample]) -> None:
        try:
            links = (await asked(place, Deed.LOOK, patience_s=LOOK_PATIENCE_S)).links
        except MqprotoError:
            state.breakable, state.broken = None, {}
        else:
            state.breakable = {"links": links is not None}
            state.broken = {key_of(one, other): str(deed) for one, other, deed in links or ()}
        try:
            feed.put(event("state", state.now(samples)))
        except Exception as error:  # A page that stands still is seen; what it runs beside goes on.
            lines.error("failed", reason=f"{type(error).__name__}: {error}", exc_info=True)

    traffic = ConsoleTraffic(lambda: state.place, lines)
    watch = NodeWatch(place, tell, traffic.stop)
    state.traffic = traffic.facts
    deeds = Deeds(lambda: state.place, traffic, watch.hurry, lines)
    questions: dict[str, Question] = {
        "/explain": lambda asked: stories.explain(state.place, asked),
        "/story": lambda asked: stories.tell(state.place, asked),
        "/failed": lambda asked: stories.list_failed(state.place, asked),
    }
    front = Front(guard, watch, feed, Backstage(state.map, questions, deeds.carry_out))
    with closing(_listening(address)) as listener:
        server = Server(front.answer, faulty, LIMITS, lines)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            nursery.start_soon(traffic.run)
            await nursery.start(server.run, [trio.SocketListener(trio.socket.from_stdlib_socket(listener))])
            host, port = listener.getsockname()[:2]
            where = f"[{host}]" if ":" in host else host
            task_status.started(f"http://{where}:{port}/#token={guard.token}")


def check(address: tuple[str, int] | None, tokens: Path | None) -> None:
    """Check that a console could be served at an address, with the tokens of a file.

    Raises:
        UsageError: it could not.
    """
    if tokens:
        Tokens.read(tokens, str)
    _listening(address, is_trial=True).close()


def _listening(address: tuple[str, int] | None, *, is_trial: bool = False) -> socket.socket:
    """Listen on this machine.

    Raises:
        UsageError: the address is not available, or others could reach it.
    """
    host, port = address or (HOST, PORT)
    check_address(host, port)
    try:
        return listen(host, port, advice=ADVICE, is_trial=is_trial)
    except UsageError:
        if address is not None:
            raise
        return listen(host, 0, advice=ADVICE)
