"""The options of `mqproto decode`, for packets and captures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mqproto.simulator.base.program.declared import value
from mqproto.simulator.base.program.environment import TOPOLOGY_VARIABLE
from mqproto.simulator.command.options import JsonOption


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The typed options."""

    topology: Annotated[
        str | None, "A topology with names for nodes and queues.", "-t", value(envvar=TOPOLOGY_VARIABLE)
    ] = None
    verbose: Annotated[
        bool, "Every field of each packet, with its offset and bytes; in a diagram, a row for each.", "-v"
    ] = False
    as_json: JsonOption = False
    summary: Annotated[bool, "Count the contents of the capture."] = False
    follow: Annotated[
        str | None,
        "One message across all hops: GUID\\NUMBER, NUMBER, or a label.",
        "--follow",
        "--message",
        "-m",
        value("MESSAGE"),
    ] = None
    diagram: Annotated[bool, "A ladder diagram."] = False
    svg: Annotated[Path | None, "Write the diagram as SVG to this file."] = None
    relative: Annotated[bool, "Show seconds since the first packet instead of the time of day.", "-r"] = False
    kinds: Annotated[list[str] | None, "SessionAck, Transactional, ..., or UserMessage.", "--kind", "-k"] = (
        None
    )
    node: Annotated[str, "A part of the name or address of one end.", "-n"] = ""
    queue: Annotated[str, "A part of the destination's name.", "-q"] = ""
    sequence: Annotated[str | None, "A TxSequenceID: ORDINAL or TIMESTAMP:ORDINAL."] = None
    connection: Annotated[
        int | None, "The number of a connection, as --json and --summary show it.", value(min=0)
    ] = None
    since: Annotated[str | None, "Seconds after the first packet, a time of day, or date and time; UTC."] = (
        None
    )
    until: Annotated[str | None, "The same for the end."] = None
    limit: Annotated[int | None, "At most this many packets.", "--limit", "--count", "-c", value(min=1)] = (
        None
    )
    keys: Annotated[
        list[str] | None,
        "Private keys to decrypt bodies, and keys or certificates to verify signatures; repeatable.",
        value("FILE|FOLDER"),
    ] = None
