"""`mqproto decode`, which reads the command line, and shows either pasted packets or a capture."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

from mqproto.base.errors import UsageError
from mqproto.base.foreign import quoted
from mqproto.base.words import counted
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, FINDING, complain, print_json
from mqproto.simulator.command.viewing import Options

if TYPE_CHECKING:
    from mqproto.simulator.command import captured

PACKETS_LIMIT: Final = 1_000
"""The maximum number of pasted packets that are shown with all fields, unless --limit says otherwise."""


def decode(
    sources: Annotated[
        list[str],
        ARGUMENT,
        "A capture (pcap or pcapng, compressed or not), or packets as bytes, hex, a hex dump or Base64; - for "
        "stdin. Several captures, such as both halves of a TAP, are read as one.",
        value("FILE|HEX|-"),
    ],
    options: Options,
    tables: Annotated[
        str | None,
        "Make the tables of mqproto analyse in this folder or at this URI, without Spark.",
        value("DIR"),
    ] = None,
    body_text: Annotated[bool, "With --tables: include the text of bodies."] = False,
) -> int:
    """Show a capture packet by packet, with what is wrong in it, or show every field of pasted packets.

    Each finding is shown below the packet that revealed it. Status 1 if a finding is a fault, if a signature fails with
    --keys, or if the capture is damaged; the packets before the damage are shown. Status 2 if the file is not a
    capture.

    \b
    mqproto decode run.pcapng                       a line for each packet
    mqproto decode run.pcapng --summary             what is in it, what is wrong
    mqproto decode east.pcapng west.pcapng          both halves of a TAP
    mqproto decode run.pcapng --follow 'order 17'   one message, hop by hop
    mqproto decode run.pcapng --diagram --until 2   a ladder of two seconds
    mqproto decode run.pcapng --keys qm2.keys       what is encrypted for qm2
    mqproto decode captures/ --tables tables        what mqproto analyse makes
    xxd packet.bin | mqproto decode -               every field of pasted bytes
    """
    from mqproto.simulator.command import captured

    keys = tuple(options.keys or ())
    if tables is not None:
        if options != Options(topology=options.topology, as_json=options.as_json, keys=options.keys):
            raise UsageError(
                "--tables makes tables of all packets: beside it are --topology, --body-text, --keys and --json"
            )
        from mqproto.simulator.command.analysis import make_tables

        return make_tables(
            sources, tables, options.topology, body_text=body_text, keys=keys, as_json=options.as_json
        )
    if body_text:
        raise UsageError("--body-text is for the tables of --tables; --json has what bodies say by itself")
    source, *others = _once(sources)
    opened = captured.open_capture(source)
    if isinstance(opened, captured.Opened):
        return captured.run([opened, *(captured.open_other(other) for other in others)], options)
    if options != Options(
        topology=options.topology,
        verbose=options.verbose,
        as_json=options.as_json,
        limit=options.limit,
        keys=options.keys,
    ):
        raise captured.no_capture(source)
    if others:
        raise UsageError("packets come one by one: name several captures, or one FILE, HEX or -")
    return packets(source, opened, options.limit or PACKETS_LIMIT, keys, as_json=options.as_json)


def _once(sources: list[str]) -> Iterator[str]:
    """Yield the sources; a file that is named again is left out, so that nothing counts twice."""
    known = set[tuple[int, int]]()
    for source in sources:
        with suppress(OSError, ValueError):
            file = os.stat(source)
            if stat.S_ISREG(file.st_mode) and (file.st_dev, file.st_ino) in known:
                complain(f"{quoted(source)} is named twice; it is read once")
                continue
            known.add((file.st_dev, file.st_ino))
        yield source


def packets(
    source: str,
    stdin: captured.StandardInput | None,
    limit: int,
    keys: tuple[str, ...] = (),
    *,
    as_json: bool,
) -> int:
    """Show every field of consecutive packets, and what is wrong with them."""
    from mqproto.captures.decode.security.keyring import read_keys
    from mqproto.captures.files.pasted import INPUT_LIMIT_BYTES, read_pasted
    from mqproto.captures.payload import take_apart
    from mqproto.simulator.base import screen
    from mqproto.simulator.command import show
    from mqproto.wire import inspect_stream
    from mqproto.wire.layouts.keyblobs import begins_private_key

    if stdin is None:
        dumps = show.read_source(source)
    else:
        with io.BufferedReader(stdin) as file:
            dumps = read_pasted(file.read(INPUT_LIMIT_BYTES + 1), "stdin")
    if any(map(begins_private_key, dumps)):
        raise UsageError("a private key is shown to nobody: mqproto keys import NODE FILE takes it")
    pasted = take_apart(dumps)
    if not pasted.parts:
        raise UsageError(
            f"{quoted(source)} has no packet: of its {counted(sum(map(len, dumps)), 'byte')} none begin as one, with "
            "0x10 and LIOR, nor as a Ping; a capture begins as pcap, pcapng, gzip or zstd"
        )
    if said := pasted.said:
        complain(f"left out: {said}")
    ring = read_keys(keys) if keys else None
    valid = True
    count = 0
    left_bytes = sum(len(part.data) for part in pasted.parts)
    for part in pasted.parts:
        for offset, inspection in inspect_stream(bytes(part.data)):
            at = part.place(offset)
            if count == limit:
                more = f"{left_bytes - offset:,} bytes more, from byte {at:,} on"
                complain(f"{more}; --limit shows more than {limit:,} packets")
                return DONE if valid else FINDING
            evidence = None if ring is None else show.evidence(inspection, ring)
            valid = valid and inspection.is_valid and (evidence is None or evidence.verified is not False)
            if as_json:
                print_json(show.as_json(inspection, at, evidence))
            else:
                screen.wide_console().print(show.as_table(inspection, at, evidence))
            count += 1
        left_bytes -= len(part.data)
    return DONE if valid else FINDING
