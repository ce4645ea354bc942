"""The commands at the edges, where messages come in and go out over HTTP.

`cli/cli.py` lists all commands.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from mqproto.simulator.base.program.declared import ARGUMENT
from mqproto.simulator.base.program.output import Program, end_with_input, run_task
from mqproto.simulator.command.options import ConfigOption
from mqproto.simulator.edges.options import GatewayOptions, SupervisedOption, TriggerOptions

if TYPE_CHECKING:
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
    from mqproto.simulator.edges.gateway.run import check, run_gateway
    from mqproto.simulator.node.node import run_node, serve
    from mqproto.simulator.topology import places

    place = options.place
    name = place.topology.node_named(options.node).name
    run = partial(
        run_node,
        place.topology,
        name,
        place.directory,
        allow_remote=options.allow_remote,
        front=partial(run_gateway, options),
    )

    def start() -> None:
        check(options)  # Otherwise its node would have started.
        places.make(place.directory)
        serve(run, name, place.directory / f"{name}.log", supervised=supervised)

    return Program(partial(check, options), start)


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
