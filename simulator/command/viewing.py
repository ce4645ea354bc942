"""What is typed for `mqproto decode`, of packets and captures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mqproto.simulator.base.program.environment import TOPOLOGY_VARIABLE
from mqproto.simulator.command.options import JsonOption


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What was typed."""

    topology: Annotated[
        str | None,
        typer.Option(
            "--topology", "-t", envvar=TOPOLOGY_VARIABLE, help="A topology with names for nodes and queues."
        ),
    ] = None
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every field of each packet, with its offset and bytes.")
    ] = False
    as_json: JsonOption = False
    summary: Annotated[bool, typer.Option("--summary", help="Count the contents of the capture.")] = False
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="MESSAGE", help="One message across all hops: GUID\\NUMBER, NUMBER, or a label."
        ),
    ] = None
    diagram: Annotated[bool, typer.Option("--diagram", help="A ladder diagram.")] = False
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the diagram as SVG to this file.")] = None
    unfold: Annotated[
        bool, typer.Option("--unfold", help="In a diagram, a row for each packet, even if several are alike.")
    ] = False
    relative: Annotated[
        bool,
        typer.Option(
            "--relative", "-r", help="Show seconds since the first packet instead of the time of day."
        ),
    ] = False
    kinds: Annotated[
        list[str] | None, typer.Option("--kind", "-k", help="SessionAck, Transactional, ..., or UserMessage.")
    ] = None
    node: Annotated[str, typer.Option("--node", "-n", help="A part of the name or address of one end.")] = ""
    queue: Annotated[str, typer.Option("--queue", "-q", help="A part of the destination's name.")] = ""
    sequence: Annotated[str | None, typer.Option(help="A TxSequenceID: ORDINAL or TIMESTAMP:ORDINAL.")] = None
    connection: Annotated[
        int | None, typer.Option(min=0, help="The number of a connection, as --json and --summary show it.")
    ] = None
    after: Annotated[
        str | None, typer.Option(help="Seconds after the first packet, a time of day, or date and time; UTC.")
    ] = None
    before: Annotated[str | None, typer.Option(help="The same for the end.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many packets.")] = None
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--keys",
            metavar="FILE|FOLDER",
            help="Private keys to decrypt bodies, and keys or certificates to verify signatures; repeatable.",
        ),
    ] = None
