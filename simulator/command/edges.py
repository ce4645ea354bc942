"""The commands at the edges, where messages come in and go out by HTTP; `cli/cli.py` has them all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from mqproto.simulator.base.program.declared import ARGUMENT
from mqproto.simulator.base.program.output import DONE, end_with_input, run_task
from mqproto.simulator.command.options import ConfigOption
from mqproto.simulator.edges.options import GatewayOptions, SupervisedOption, TriggerOptions

if TYPE_CHECKING:
    from mqproto.simulator.topology.places import Place


def gateway(options: GatewayOptions, _config: ConfigOption = "", supervised: SupervisedOption = False) -> int:
    """Accept messages over HTTP: POST /queues/NAME/messages is answered 200 once the message is on disk at the node.

    \b
    $ curl -H 'Idempotency-Key: order-17' -H 'Content-Type: application/json' \\
        --data '{"pieces": 3}' http://127.0.0.1:8080/queues/orders/messages
    {"id":"963EBEB9-8A2F-504A-9728-78C61096BF80\\\\3","duplicate":false}

    The same request again gets the same id, and is dropped. /openapi.json describes all requests and answers.
    """
    if supervised:
        end_with_input()
    from mqproto.simulator.edges.gateway.run import serve

    run_task(partial(serve, options))
    return DONE


def trigger(
    queue: Annotated[str, ARGUMENT, r"Such as 'destination\orders'."],
    place: Place,
    options: TriggerOptions,
    _config: ConfigOption = "",
) -> int:
    """Call a service for each message of a queue: once, in order, and again if it fails. Ctrl-C or SIGTERM ends it.

    200 to 299 is success. 400 to 499 with a JSON field `code`, or as application/problem+json, is a business error: the
    message goes to the error queue. Everything else, even a plain 400, rolls back, and the message is attempted again.
    NODE-trigger.log, beside the stores, has the result of each attempt; only the first failure is printed until a
    message succeeds.

    \b
    $ mqproto trigger orders --url http://127.0.0.1:8080/orders
    """
    if options.supervised:
        end_with_input()
    from mqproto.simulator.edges.trigger.run import serve

    run_task(partial(serve, place, queue, options))
    return DONE
