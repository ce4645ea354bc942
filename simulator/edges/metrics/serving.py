"""Serves the address at which a gateway or trigger answers /metrics, /live and /ready."""

from __future__ import annotations

from contextlib import closing

import trio
from structlog.typing import FilteringBoundLogger

from mqproto.simulator.base.http.monitoring import Monitored, served
from mqproto.simulator.base.sockets import listen
from mqproto.simulator.topology.file import written_address


async def answer_scrapes(
    address: tuple[str, int],
    monitored: Monitored,
    log: FilteringBoundLogger,
    *,
    allow_remote: bool = False,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer scrapes at this address until cancelled.

    Raises:
        UsageError: the address is not available.
    """
    with closing(
        listen(*address, allow_remote=allow_remote, advice="name another with --metrics")
    ) as listener:
        log.info("metrics", address=written_address(*address))
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listener))]
        await served(monitored, log).run(listeners, task_status=task_status)
