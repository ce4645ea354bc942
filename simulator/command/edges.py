"""The commands at the edges, where messages come in and go out over HTTP.

`cli/cli.py` lists all commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from mqproto.simulator.base.program.declared import ARGUMENT
from mqproto.simulator.base.program.output import Program, end_with_input, run_task
from mqproto.simulator.command.options import ConfigOption
from mqproto.simulator.edges.options import GatewayOptions, SupervisedOption, TriggerOptions

if TYPE_CHECKING:
    from mqproto.simulator.node.control import QueueWish
    from mqproto.simulator.topology.places import Place


def gateway(
    options: GatewayOptions, _config: ConfigOption = "", supervised: SupervisedOption = False
) -> Program:
    """Run a node that accepts messages over HTTP. POST /queues/NAME/messages gets 200 once the message is on disk.

    \b
    $ curl -H 'Idempotency-Key: order-17' -H 'Content-Type: application/json' \\
        --data '{"pieces": 3}' http://127.0.0.1:8080/queues/orders/messages
    {"id":"963EBEB9-8A2F-504A-9728-78C61096BF80\\\\3","duplicate":false}

    A repeated request gets the same id, and its message is dropped. /openapi.json describes all requests and answers.
    """
    place = options.place
    name = place.topology.node_named(options.node).name
    remote, log = options.allow_remote, place.directory / f"{name}.log"
    return node_program(place, name, options, NodeOptions(remote, remote, log=log, supervised=supervised))


class NodeOptions(NamedTuple):
    """How to run a node: see `run_node` and `serve`."""

    allow_remote: bool
    remote_metrics: bool
    queues: Sequence[QueueWish] = ()
    capture: Path | None = None
    log: Path | None = None
    supervised: bool = False


def node_program(place: Place, name: str, gateway: GatewayOptions | None, options: NodeOptions) -> Program:
    """Return the program that runs a node, with an HTTP front if there are options for one."""
    from mqproto.simulator.node.node import check_node, run_node, serve
    from mqproto.simulator.topology import places

    meant = place.topology, name, place.directory
    remote, remote_metrics, queues, capture, log, supervised = options
    # The folder of the stores is made if it is not there.
    files = [file for file in (log, capture) if file is not None and file.parent != place.directory]
    run = partial(
        run_node, *meant, allow_remote=remote, remote_metrics=remote_metrics, queues=queues, capture=capture
    )
    # What a front takes is imported by those alone who want one.
    if gateway is not None:
        from mqproto.simulator.edges.gateway.run import check, run_gateway

        run = partial(run, front=partial(run_gateway, gateway))

    def checked() -> None:
        check_node(*meant, files, allow_remote=remote, remote_metrics=remote_metrics)
        if gateway is not None:
            check(gateway)

    def start() -> None:
        if gateway is not None:
            check(gateway)  # Otherwise its node would have started.
        places.make(place.directory)
        serve(run, name, log, supervised=supervised)

    return Program(checked, start)


def trigger(
    queue: Annotated[str, ARGUMENT, r"The queue, such as 'destination\orders'."],
    place: Place,
    options: TriggerOptions,
    _config: ConfigOption = "",
) -> Program:
    """Call a service once for each message of a queue, in order; retry if it fails. Ctrl-C or SIGTERM ends the trigger.

    A status of 200 to 299 means success. One of 400 to 499 with a JSON field `code`, or with application/problem+json,
    means a business error: the message goes to the error queue. After any other result, even a plain 400, the message
    is attempted again. NODE-trigger.log, next to the stores, has the result of each attempt. After a failure, further
    failures are not printed until a message succeeds.

    \b
    $ mqproto trigger orders --url http://127.0.0.1:8080/orders
    """
    if options.supervised:
        end_with_input()
    from mqproto.simulator.edges.trigger.run import check, serve

    started = place, queue, options
    return Program(partial(check, *started), partial(run_task, partial(serve, *started)))
