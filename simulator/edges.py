"""The commands at the edges, where messages come in and go out by HTTP; `cli.py` has them all."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from simulator.options import DONE, DirectoryOption, TopologyArgument, place_of, run_task


def gateway(
    topology: TopologyArgument,
    node: Annotated[str, typer.Argument(help="Which of its nodes messages are handed to.")],
    directory: DirectoryOption = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where producers find it.")
    ] = "127.0.0.1:8080",
    free_port: Annotated[
        bool, typer.Option("--free-port", help="Take whatever port is free on that host.")
    ] = False,
    name: Annotated[str, typer.Option(help="Another for each gateway of the node.")] = "gateway",
    history: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The document history, shared by all gateways: sqlite:///PATH or postgresql+psycopg://...; "
            "by default history.sqlite beside the stores.",
            show_default=False,
        ),
    ] = "",
    key_header: Annotated[
        str, typer.Option(metavar="NAME", help="The header with the producer's id of a message.")
    ] = "Idempotency-Key",
    key_field: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The field of a JSON body that has it instead.", show_default=False
        ),
    ] = "",
    require_key: Annotated[
        bool, typer.Option("--require-key", help="Refuse a message without an id; it could come twice.")
    ] = False,
    tokens: Annotated[
        Path | None, typer.Option(help="A TOML file of bearer tokens, and the queues that each opens.")
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages a second that each queue takes; 0 for no limit.")
    ] = 0,
    connections: Annotated[
        int, typer.Option(min=1, max=50_000, help="At once; one more is told to come back later.")
    ] = 1_000,
    allow_remote: Annotated[bool, typer.Option("--allow-remote", help="Listen beyond loopback.")] = False,
) -> int:
    """Take messages by HTTP: POST /queues/NAME/messages is answered 200 once the message is on disk at the node.

    \b
    $ curl -H 'Idempotency-Key: order-17' -H 'Content-Type: application/json' \\
        --data '{"pieces": 3}' http://127.0.0.1:8080/queues/orders/messages
    {"id":"963EBEB9-8A2F-504A-9728-78C61096BF80\\\\3","duplicate":false}

    The same once more gives the same id, and is dropped. /openapi.json has all that may be said and answered.
    """
    from simulator.gatewayrun import Options, serve
    from simulator.topology.file import read_address

    host, port = read_address(listen, "--listen", 8080)
    options = Options(
        place=place_of(topology, directory),
        node=node,
        host=host,
        port=0 if free_port else port,
        name=name,
        history=history,
        key_header=key_header,
        key_field=key_field,
        require_key=require_key,
        tokens=tokens,
        rate=rate,
        connections=connections,
        allow_remote=allow_remote,
    )
    run_task(partial(serve, options))
    return DONE
