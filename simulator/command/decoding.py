"""`mqproto decode`: what is typed, and whether it means packets or a capture."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mqproto.base.errors import UsageError
from mqproto.simulator.base.program.environment import TOPOLOGY_VARIABLE
from mqproto.simulator.command.options import DONE, FINDING, JsonOption, complain, print_json

if TYPE_CHECKING:
    from mqproto.simulator.command import captured

PACKETS_LIMIT: Final = 1_000
"""How many packets of a stream are shown, each with all its fields, unless --limit asks for another number."""


def decode(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|HEX|-",
            help="A capture (pcap, pcapng, packed or not), or packets: bytes, hex, a hex dump, Base64; - for stdin. "
            "Several captures are read as one: both halves of a TAP, or two places.",
        ),
    ],
    topology: Annotated[
        str | None,
        typer.Option("--topology", "-t", envvar=TOPOLOGY_VARIABLE, help="What nodes and queues are called."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every field of each packet, with its offset and bytes.")
    ] = False,
    as_json: JsonOption = False,
    summary: Annotated[bool, typer.Option("--summary", help="Count what the capture holds.")] = False,
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="MESSAGE", help="One message across all hops: GUID\\NUMBER, NUMBER, or a label."
        ),
    ] = None,
    diagram: Annotated[bool, typer.Option("--diagram", help="A ladder diagram.")] = False,
    svg: Annotated[Path | None, typer.Option("--svg", help="The diagram as SVG, in this file.")] = None,
    unfold: Annotated[
        bool, typer.Option("--unfold", help="In a diagram, a row for each of several packets that are alike.")
    ] = False,
    relative: Annotated[
        bool, typer.Option("--relative", "-r", help="Seconds since the first packet, not the time of day.")
    ] = False,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", "-k", help="SessionAck, Transactional, ..., or UserMessage.")
    ] = None,
    node: Annotated[str, typer.Option("--node", "-n", help="A part of the name or address of one end.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="A part of the destination's name.")] = "",
    sequence: Annotated[
        str | None, typer.Option(help="A TxSequenceID: ORDINAL or TIMESTAMP:ORDINAL.")
    ] = None,
    connection: Annotated[
        int | None, typer.Option(min=0, help="Its number; --json and --summary show it.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="Seconds after the first packet, a time of day, or date and time; UTC.")
    ] = None,
    before: Annotated[str | None, typer.Option(help="The same, for the end.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many packets at most.")] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--keys",
            metavar="FILE|FOLDER",
            help="Private keys that open bodies, and keys or certificates that prove signatures; repeatable.",
        ),
    ] = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="DIR",
            help="The tables of mqproto analyse in this folder or at this URI, made here and without Spark.",
        ),
    ] = None,
    body_text: Annotated[
        bool, typer.Option("--body-text", help="With --tables: what bodies say, as far as it is text.")
    ] = False,
) -> int:
    """What a capture says, packet by packet, and what is wrong with it; or every field of packets that somebody pasted.

    Findings stand below the packet with which they came to light. Status 1 if one of them is a fault, if with --keys a
    signature does not hold, or if the capture is damaged (what came before the damage is shown); 2 if it is no capture.

    \b
    mqproto decode run.pcapng                       a line for each packet
    mqproto decode run.pcapng --summary             what is in it, what is wrong
    mqproto decode east.pcapng west.pcapng          both halves of a TAP
    mqproto decode run.pcapng --follow 'order 17'   one message, hop by hop
    mqproto decode run.pcapng --diagram --before 2  a ladder of two seconds
    mqproto decode run.pcapng --keys qm2.keys       what is encrypted for qm2
    mqproto decode captures/ --tables tables        what mqproto analyse makes
    xxd packet.bin | mqproto decode -               every field of pasted bytes
    """
    from mqproto.simulator.command import captured

    options = captured.Options(
        topology=topology,
        verbose=verbose,
        as_json=as_json,
        summary=summary,
        follow=follow,
        diagram=diagram,
        svg=svg,
        unfold=unfold,
        relative=relative,
        kinds=kind or [],
        node=node,
        queue=queue,
        sequence=sequence,
        connection=connection,
        after=after,
        before=before,
        limit=limit,
        keys=tuple(keys or ()),
    )
    if tables is not None:
        if options != captured.Options(topology=topology, as_json=as_json, keys=options.keys):
            raise UsageError(
                "--tables makes tables of all packets: beside it are --topology, --body-text, --keys and --json"
            )
        from mqproto.simulator.command.analysis import make_tables

        return make_tables(sources, tables, topology, body_text=body_text, keys=options.keys, as_json=as_json)
    if body_text:
        raise UsageError("--body-text is for the tables of --tables; --json has what bodies say by itself")
    source, *others = sources
    opened = captured.open_capture(source)
    if isinstance(opened, captured.Opened):
        return captured.run([opened, *(captured.open_other(other) for other in others)], options)
    if options != captured.Options(
        topology=topology, verbose=verbose, as_json=as_json, limit=limit, keys=options.keys
    ):
        raise UsageError(f"{source} is no capture: it begins neither as pcap, pcapng, gzip nor zstd")
    if others:
        raise UsageError("packets come one by one: name several captures, or one FILE, HEX or -")
    return packets(source, opened, limit or PACKETS_LIMIT, options.keys, as_json=as_json)


def packets(
    source: str,
    stdin: captured.StandardInput | None,
    limit: int,
    keys: tuple[str, ...] = (),
    *,
    as_json: bool,
) -> int:
    """Every field of packets that stand behind one another, and what is wrong with them."""
    from mqproto.captures.decode.security.keyring import read_keys
    from mqproto.captures.files.pasted import INPUT_LIMIT_BYTES, read_pasted
    from mqproto.captures.net.payload import payload_in
    from mqproto.simulator.base import screen
    from mqproto.simulator.command import show
    from mqproto.wire import inspect_stream
    from mqproto.wire.layouts.keyblobs import begins_private_key

    if stdin is None:
        data = show.read_source(source)
    else:
        with io.BufferedReader(stdin) as file:
            data = read_pasted(file.read(INPUT_LIMIT_BYTES + 1), "stdin")
    if begins_private_key(data):
        raise UsageError("a private key is shown to nobody: mqproto keys import NODE FILE takes it")
    begins, data = payload_in(data)
    ring = read_keys(keys) if keys else None
    valid = True
    for count, (offset, inspection) in enumerate(inspect_stream(data)):
        at = begins + offset
        if count == limit:
            more = f"{len(data) - offset:,} bytes more, from byte {at:,} on"
            complain(f"{more}; --limit shows more than {limit:,} packets")
            break
        evidence = None if ring is None else show.evidence(inspection, ring)
        valid = valid and inspection.is_valid and (evidence is None or evidence.verified is not False)
        if as_json:
            print_json(show.as_json(inspection, at, evidence))
        else:
            screen.wide_console().print(show.as_table(inspection, at, evidence))
    return DONE if valid else FINDING
