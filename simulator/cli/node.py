"""`mqproto node`, the command with the most settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program import output
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.environment import DEFAULT_TOPOLOGY
from mqproto.simulator.base.program.output import Program
from mqproto.simulator.base.program.settings import REHEARSAL, Rehearsal
from mqproto.simulator.cli.queues import asked_for
from mqproto.simulator.command.edges import NodeOptions, node_program
from mqproto.simulator.command.options import (
    ConfigOption,
    DirectoryOption,
    TopologyOption,
    WaypointsOption,
    only_node,
    place_of,
)
from mqproto.simulator.edges.options import GatewayOptions, TracesOption


def node(
    context: typer.Context,
    name: Annotated[str, ARGUMENT, "The node; needed if the topology has several.", value("[NODE]")] = "",
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    alone: Annotated[
        str, "Run a node that belongs to no topology; its first start creates it.", "--name", value("NAME")
    ] = "",
    queues: Annotated[
        list[str] | None,
        "Make this queue if it does not exist; repeatable. With :strangers, anyone may send to it, even "
        "from outside the topology.",
        "--queue",
        "-q",
        value("NAME[:transactional][:strangers]"),
    ] = None,
    address: Annotated[
        str | None, "The address of a new single node; 127.0.0.1:1801 by default.", value("HOST[:PORT]")
    ] = None,
    directory: DirectoryOption = None,
    allow_remote: Annotated[bool, "Listen beyond loopback."] = False,
    readers: Annotated[
        str, "Let this group of users look at the node through a socket, without changing it.", value("GROUP")
    ] = "",
    readers_folder: Annotated[
        Path | None,
        "The folder for the readers' socket; readers give it as their --directory. By default, a temporary folder.",
        value("FOLDER"),
    ] = None,
    metrics: Annotated[
        str | None,
        "Serve /metrics for Prometheus, /live and /ready over HTTP at this address; the port is 9180 by "
        "default. An address beyond loopback needs --allow-remote.",
        value("HOST[:PORT]"),
    ] = None,
    gateway: Annotated[
        str,
        "Accept messages over HTTP at this address; mqproto gateway and a topology have more options.",
        value("HOST:PORT"),
    ] = "",
    traces: TracesOption = "",
    capture: Annotated[Path | None, "Record packets in this pcapng; an existing file is extended."] = None,
    waypoints: WaypointsOption = False,
    log: Annotated[
        Path | None, "Log to this file, not to stderr. It rotates at 16 MiB, and four older files are kept."
    ] = None,
    _config: ConfigOption = "",
    supervised: Annotated[bool, value(hidden=True)] = False,
) -> Program:
    """Run one queue manager, a node of a topology or a single node, in the foreground until Ctrl-C or SIGTERM.

    \b
    $ mqproto node --name shop --queue orders:strangers --queue log:transactional
    $ mqproto send orders --body hello --topology shop
    $ mqproto queue create notes --topology shop
    """
    from mqproto.simulator.topology.places import Place

    if alone and (name or _was_said(context, "topology")):
        raise UsageError("--name is that of a node alone: leave NODE and --topology out")
    if address is not None and not alone:
        raise UsageError("--address is for a node alone, with --name; a topology says where its nodes listen")
    # If a queue is mistyped, no node is made.
    remote_metrics, wishes = allow_remote, [*map(asked_for, queues or ())]
    if alone:
        from mqproto.simulator.topology.alone import node_alone

        makes = REHEARSAL.get() is Rehearsal.NONE
        place, name = Place(*node_alone(alone, directory, address, makes=makes)), alone
        allow_remote = True  # Whoever gave it its address has asked for that.
    else:
        place = place_of(topology, directory)
        name = name or only_node(place)
    if waypoints:
        place = place.with_waypoints()
    name = place.topology.node_named(name).name
    if supervised:
        output.LOG_OF = name
    if metrics is not None:
        place = place.with_metrics(metrics, name)
    if traces:
        place = place.with_traces(traces, name)
    if gateway:
        place = place.with_gateway(gateway, name, allow_remote=remote_metrics)
    place = replace(place, topology=place.topology.with_readers(name, readers, readers_folder))
    table = place.topology.nodes[name].gateway
    options = NodeOptions(allow_remote, remote_metrics, wishes, capture, log, supervised)
    return node_program(
        place, name, None if table is None else GatewayOptions.of(place, name, table), options
    )


def _was_said(context: typer.Context, name: str) -> bool:
    """Return whether an option was given on the command line or in the settings file.

    An environment variable does not count, because it applies to all commands.
    """
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")
