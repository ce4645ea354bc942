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
    """The options as given on the command line."""

    topology: Annotated[
        str | None, "A topology with names for nodes and queues.", "-t", value(envvar=TOPOLOGY_VARIABLE)
    ] = None
    verbose: Annotated[
        bool,
        "Show every field of each packet, with its offset and bytes; in a diagram, a row for each packet.",
        "-v",
    ] = False
    as_json: JsonOption = False
    summary: Annotated[bool, "Count the contents of the capture."] = False
    follow: Annotated[
        str | None,
        "Follow one message across all hops: GUID\\NUMBER, NUMBER, or a label.",
        "--follow",
        "--message",
        "-m",
        value("MESSAGE"),
    ] = None
    diagram: Annotated[bool, "Draw a ladder diagram."] = False
    svg: Annotated[Path | None, "Write the diagram as SVG to this file."] = None
    relative: Annotated[bool, "Show seconds since the first packet instead of the time of day.", "-r"] = False
    kinds: Annotated[
        list[str] | None,
        "Only packets of this kind: SessionAck, Transactional, ..., or UserMessage.",
        "--kind",
        "-k",
    ] = None
    node: Annotated[str, "Only packets from or to a node with this text in its name or address.", "-n"] = ""
    queue: Annotated[str, "Only packets with this text in their destination's name.", "-q"] = ""
    sequence: Annotated[str | None, "Only packets of this TxSequenceID: ORDINAL or TIMESTAMP:ORDINAL."] = None
    connection: Annotated[
        int | None, "Only the connection with this number in --json and --summary.", value(min=0)
    ] = None
    since: Annotated[
        str | None,
        "Where to begin: seconds after the first packet, a time of day, or a date and time; UTC.",
    ] = None
    until: Annotated[str | None, "Where to end; takes the same formats as --since."] = None
    limit: Annotated[
        int | None, "Show at most this many packets.", "--limit", "--count", "-c", value(min=1)
    ] = None
    keys: Annotated[
        list[str] | None,
        "Private keys to decrypt bodies, and keys or certificates to verify signatures; repeatable.",
        value("FILE|FOLDER"),
    ] = None
