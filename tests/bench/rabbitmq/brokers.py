"""Brokers of RabbitMQ in a row: processes on loopback, each with files of its own, joined by shovels.

A shovel is a plugin of a broker's: it takes messages from a queue, publishes them to the next broker, and acknowledges
each when that has confirmed it. Each broker has two queues, a classic one and a quorum queue with one member, so the
same brokers are two chains. Erlang's daemon for names, epmd, is one of these processes as well. A broker looks once a
minute whether it is known to one, and else begins its own, at all addresses, which stays when all is over.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from mqproto.base.errors import UsageError
from simulator.base.processes import cpu_s_of
from simulator.faults.supervisor import NodeError
from simulator.topology.ports import reserved_address
from tests.bench.load.row import THREE, comes_true
from tests.bench.load.spawned import Process, ended, last_line, spawned
from tests.bench.load.stretch import UNACKNOWLEDGED

PROGRAM: Final = "rabbitmq-server"
NAMES_PROGRAM: Final = "epmd"
DEBIAN: Final = "/usr/lib/rabbitmq/bin"
"""Where Debian has the program itself. That on PATH would become another user, and write to /var."""
CLASSIC, QUORUM = QUEUES = ("classic", "quorum")
"""The queues of each broker, called by their type."""
START_TIMEOUT_S: Final = 120.0
"""Each takes some seven seconds of processor time."""
LOG: Final = "server.log"
TOLD: Final = "told"
LOOK_S: Final = 0.05
RETRY_S: Final = 1
"""After what time a shovel tries again whose next broker is not up yet."""
TELLS: Final = (
    "-eval spawn(fun()->rabbit:await_startup(),"
    'file:write_file(os:getenv("MQPROTO_TOLD"),io_lib:format("~s~n~s~n~p~n",[rabbit_misc:version(),'
    "erlang:system_info(otp_release),"
    "catch(maps:get(wal_sync_method,ra_system:fetch(quorum_queues)))]))end)."
)
"""Has a broker write down, once it is up, its version, that of Erlang, and how the log of its quorum queues flushes.

There is no space in the Erlang of it: RabbitMQ's script takes what stands between spaces for arguments.
"""


def program() -> str:
    """Where the server is: where Debian's package puts it, or on PATH.

    Raises:
        UsageError: nowhere.
    """
    if (found := shutil.which(PROGRAM, path=DEBIAN) or shutil.which(PROGRAM)) is None:
        raise UsageError(f"there is no {PROGRAM} here: apt-get install --no-install-recommends {PROGRAM}")
    return found


def names_program() -> str:
    """Where Erlang's daemon for names is.

    Raises:
        UsageError: nowhere.
    """
    if (found := shutil.which(NAMES_PROGRAM)) is None:
        raise UsageError(
            f"there is no {NAMES_PROGRAM} on PATH, which Erlang brings: apt-get install erlang-base"
        )
    return found


def config_of(port: int, next_port: int | None) -> str:
    """The configuration of a broker, with a shovel for each queue if there is a next one."""
    shovels = [] if next_port is None else [_shovel(queue, port, next_port) for queue in QUEUES]
    return f"[{{rabbitmq_shovel, [{{shovels, [{', '.join(shovels)}]}}]}}].\n"


def _shovel(queue: str, port: int, next_port: int) -> str:
    declared = (
        f"{{declarations, [{{'queue.declare', [{{queue, <<\"{queue}\">>}}, durable, "
        f'{{arguments, [{{<<"x-queue-type">>, longstr, <<"{queue}">>}}]}}]}}]}}'
    )
    source, destination = (
        f'{{protocol, amqp091}}, {{uris, ["amqp://127.0.0.1:{at}"]}}, {declared}' for at in (port, next_port)
    )
    return (
        f'{{{queue}, [{{source, [{source}, {{queue, <<"{queue}">>}}, {{prefetch_count, {UNACKNOWLEDGED}}}]}}, '
        f"{{destination, [{destination}, {{publish_properties, [{{delivery_mode, 2}}]}}, "
        f'{{publish_fields, [{{exchange, <<>>}}, {{routing_key, <<"{queue}">>}}]}}]}}, '
        f"{{ack_mode, on_confirm}}, {{reconnect_delay, {RETRY_S}}}]}}"
    )


@dataclass(frozen=True, slots=True)
class Broker:
    """One that runs.

    address: where it listens for clients.
    version: its own, as it says: `3.10.8 on Erlang 25`.
    syncs: how the log of its quorum queues has each batch flushed, as it says: `datasync`.
    """

    name: str
    process: Process
    address: tuple[str, int]
    version: str
    syncs: str

    def cpu_s(self) -> float | None:
        """User and system time it has taken so far, or None where the kernel does not tell."""
        return cpu_s_of(self.process.pid)


@asynccontextmanager
async def brokers_in_a_row(server: str, names: Sequence[str] = THREE) -> AsyncIterator[dict[str, Broker]]:
    """Brokers by name, in a folder among the temporary files, for the block; ended with it, whatever ends it.

    Raises:
        NodeError: one does not start; the text is its own last line.
    """
    with tempfile.TemporaryDirectory(prefix="mqproto-bench-rabbitmq-") as folder:
        addresses = {name: reserved_address() for name in names}
        names_address = reserved_address()
        running: dict[str, Broker] = {}
        processes: list[Process] = []
        daemon = spawned(
            [names_program(), "-address", names_address[0], "-port", str(names_address[1])],
            Path(folder) / LOG,
        )
        try:
            if not await comes_true(partial(_answers, names_address), START_TIMEOUT_S):
                raise NodeError(f"{NAMES_PROGRAM}: {last_line(Path(folder) / LOG) or 'it does not answer'}")
            for name, following in zip(names, [*names[1:], None], strict=True):
                place = Path(folder) / name
                place.mkdir()
                next_port = None if following is None else addresses[following][1]
                (place / "advanced.config").write_text(config_of(addresses[name][1], next_port), "utf-8")
                (place / "enabled_plugins").write_text("[rabbitmq_shovel].\n", "utf-8")
                (place / "environment").write_text("", "utf-8")
                environment = environment_of(name, place, addresses[name], names_address[1])
                processes.append(spawned([server], place / LOG, environment, place))
            # They start beside each other, and their shovels wait for each other.
            for name, process in zip(names, processes, strict=True):
                running[name] = await _ready(name, process, Path(folder) / name, addresses[name])
            yield running
        finally:
            with trio.CancelScope(shield=True):
                await ended(processes)
                await ended([daemon])


async def _answers(address: tuple[str, int]) -> bool:
    """Whether somebody listens there."""
    try:
        stream = await trio.open_tcp_stream(*address)
    except OSError:
        return False
    await stream.aclose()
    return True


def environment_of(name: str, place: Path, address: tuple[str, int], names_port: int) -> dict[str, str]:
    """The variables of a broker's process: ours, and where all is that it would look for elsewhere.

    names_port: of epmd.
    """
    _, distribution_port = reserved_address()
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))}
    return {
        **ours,
        "HOME": str(place),
        "ERL_EPMD_PORT": str(names_port),
        "MQPROTO_TOLD": str(place / TOLD),
        "RABBITMQ_NODENAME": f"{name}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": address[0],
        "RABBITMQ_NODE_PORT": str(address[1]),
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_CONF_ENV_FILE": str(place / "environment"),
        "RABBITMQ_CONFIG_FILE": str(place / "none"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(place / "advanced.config"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(place / "generated"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(place / "data"),
        "RABBITMQ_LOG_BASE": str(place / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(place / "pid"),
        # Then its script becomes the broker, and no shell stands between us and it.
        "RUNNING_UNDER_SYSTEMD": "true",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            f"-sname {name}@localhost -start_epmd false -kernel inet_dist_use_interface {{127,0,0,1}} "
            f"inet_dist_listen_min {distribution_port} inet_dist_listen_max {distribution_port} {TELLS}"
        ),
    }


async def _ready(name: str, process: Process, place: Path, address: tuple[str, int]) -> Broker:
    with trio.move_on_after(START_TIMEOUT_S):
        while process.poll() is None:
            if told := _told(place / TOLD):
                version, erlang, syncs = told
                return Broker(name, process, address, f"{version} on Erlang {erlang}", syncs)
            await trio.sleep(LOOK_S)
        raise NodeError(f"{PROGRAM} {name}: {last_line(place / LOG) or process.returncode}")
    raise NodeError(f"{PROGRAM} {name} was not ready after {START_TIMEOUT_S:g} s: {last_line(place / LOG)}")


def _told(file: Path) -> list[str]:
    """The lines that a broker writes once it is up; none before that, and while it writes."""
    lines = file.read_text("utf-8").split("\n") if file.exists() else []
    return lines[:3] if len(lines) > 3 else []
