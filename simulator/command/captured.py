"""Shows a capture: as lines, fields, JSON, a summary, the path of one message, or a ladder diagram."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from mqproto.base.errors import UsageError
from mqproto.base.words import counted
from mqproto.captures.decode import (
    Analyst,
    Finding,
    Follower,
    Ladder,
    LineWriter,
    Names,
    Selection,
    Severity,
    Sight,
    Summary,
    row_of,
    svg,
)
from mqproto.captures.decode.names import SHORT_GUID, QueueKey
from mqproto.captures.decode.security.keyring import Evidence, read_keys
from mqproto.captures.decode.selection import kinds_named, moment_named, sequence_named
from mqproto.captures.decode.systems import Systems, contents_of
from mqproto.captures.decode.views.evidence import evidence_lines
from mqproto.captures.decode.views.quality import kinds
from mqproto.captures.files.frame import CaptureError, Frame
from mqproto.captures.files.pcap import HEAD_BYTES, MAGICS, foreign, read_frames
from mqproto.captures.files.pcapng import Dropped
from mqproto.captures.net.merging import merged, series_of
from mqproto.captures.net.recent import AHEAD_COUNT
from mqproto.captures.net.turns import Turn, Turns
from mqproto.captures.packets import PacketReader
from mqproto.simulator.base.program.output import DONE, FINDING, MISUSE, complain, print_json
from mqproto.simulator.base.screen import wide_console
from mqproto.simulator.command import show
from mqproto.simulator.command.viewing import Options
from mqproto.simulator.topology import Topology, load
from mqproto.wire import Inspection, Ping, guid_text, inspect_packet, inspect_ping

DIAGRAM_LIMIT: Final = 1_000
"""The maximum number of packets in a diagram, unless --limit gives another number."""
PROGRESS_PACKETS: Final = 4_096
DIAGRAM_COLUMNS: Final = 80
"""The width, in columns, of a diagram that is written to a pipe."""


@dataclass(slots=True)
class Opened:
    """A file that begins like a capture. The size of standard input is not known.

    dropped: what the file says about dropped frames, in the part that has been read.
    """

    file: BinaryIO
    where: str
    size_bytes: int = 0
    dropped: Dropped = field(default_factory=Dropped)


class StandardInput(io.RawIOBase):
    """Standard input from its first byte on, even though its beginning has already been read.

    The bytes that were read are given first.
    """

    def __init__(self, head: bytes) -> None:
        super().__init__()
        self._head = head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)]
        self._head = self._head[len(data) :]
        if not data:
            data = cast(io.BufferedReader, sys.stdin.buffer).read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def open_capture(source: str) -> Opened | StandardInput | None:
    """Open the capture that `source` names.

    Returns:
        The capture. If standard input is not a capture, it is returned as a StandardInput; if a file
        or an argument is not a capture, the result is None.

    Raises:
        UsageError: the source begins like a known format that cannot be read here.
    """
    if source == "-":
        head = sys.stdin.buffer.read(max(map(len, MAGICS)))
        if head.startswith(MAGICS):
            return Opened(cast(BinaryIO, StandardInput(head)), "stdin")
        head += sys.stdin.buffer.read(HEAD_BYTES - len(head))
        _refuse_foreign("stdin", head)
        return StandardInput(head)
    path = Path(source)
    try:
        if not path.is_file():
            return None
        file = path.open("rb")
    except OSError:
        return None  # It may be hex that is too long for a name; its reader says what is wrong.
    head = file.read(HEAD_BYTES)
    if head.startswith(MAGICS):
        file.seek(0)
        return Opened(file, source, path.stat().st_size)
    file.close()
    _refuse_foreign(source, head)
    return None


def _refuse_foreign(source: str, head: bytes) -> None:
    if (why := foreign(head)) is not None:
        raise UsageError(f"{source} is {why}")


def open_other(source: str) -> Opened:
    """Return one more capture.

    Raises:
        UsageError: it is not a capture.
    """
    opened = open_capture(source) if source != "-" else None
    if not isinstance(opened, Opened):
        raise no_capture(source)
    return opened


def no_capture(source: str) -> UsageError:
    """Return an error that says why a source is not a capture, and what to do."""
    path = Path(source)
    why = "is not a capture: it begins neither as pcap, pcapng, gzip nor zstd"
    with suppress(OSError):  # Hex may be too long for a name.
        if path.is_dir():
            why = "is a folder; name a file in it, or --tables for all of it"
        elif path.is_symlink() and not path.is_file():
            why = "is a link that leads nowhere; name a capture"
        elif "://" in source:
            why = "is a URI, which --tables reads"
        elif source != "-" and not path.exists():
            why = "is not a capture, and no file has this name; name a capture"
        elif path.is_file() and not path.stat().st_size:
            why = "is empty; name a capture"
    return UsageError(f"{source} {why}")


def run(captures: Sequence[Opened], options: Options) -> int:
    """Show a capture, or several as one, and return the exit status."""
    with ExitStack() as stack:
        for opened in captures:
            stack.enter_context(opened.file)
        if sum((options.summary, options.follow is not None, options.diagram or options.svg is not None)) > 1:
            raise UsageError(
                "--summary, --follow and --diagram each show the capture in their own way; choose one"
            )
        if options.keys and (options.summary or options.follow is not None or options.diagram or options.svg):
            raise UsageError("--keys is for packets: leave --summary, --follow, --diagram and --svg out")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # Diagrams have signs that not every pipe can take.
        names = names_of(load(options.topology)) if options.topology else Names()
        with closing(_frames(captures)) as frames:
            return _show(_Reading(captures, frames, options, names), options)


def _show(reading: _Reading, options: Options) -> int:
    if options.summary:
        return _summary(reading, options)
    if options.follow is not None:
        status = _follow(reading, options, options.follow)
    elif options.diagram or options.svg is not None:
        status = _diagram(reading, options)
    else:
        status = _packets(reading, options)
    if reading.unread and (options.as_json or not reading.prints_as_it_reads):
        complain(f"0 packets{reading.unread}")
    return status


def _frames(captures: Sequence[Opened]) -> Generator[Frame, None, None]:
    """Yield the frames of all captures. Close this generator before closing the files."""
    if len(captures) == 1:
        yield from read_frames(captures[0].file, captures[0].where, captures[0].dropped)
        return
    some = series_of(
        (opened.where, read_frames(opened.file, opened.where, opened.dropped)) for opened in captures
    )
    if len(some) == 1:
        yield from (frame._replace(number=number) for number, frame in enumerate(some[0][1], 1))
        return

    def look(heads: Sequence[Sequence[Frame]]) -> None:
        systems = Systems()
        for (name, _), head in zip(some, heads, strict=True):
            contents = contents_of(PacketReader(head))
            if (clash := systems.clash(contents)) is not None:
                other, why = clash
                raise UsageError(f"{name} and {other} are not of one system: {why}; decode them one by one")
            systems.add(name, contents)

    yield from merged([frames for _, frames in some], look)


def names_of(topology: Topology) -> Names:
    """Return the names of a topology's nodes and queues."""
    nodes = topology.nodes.values()
    shared = Counter(node.host for node in nodes)
    queues: dict[QueueKey, str] = {}
    for node in nodes:
        for queue in node.queues.values():
            called = f"{node.name}\\{queue.name}"
            queues[node.guid, queue.identifier] = called
            if queue.public is not None:
                queues[queue.public] = called
            if queue.connector is not None:
                # Which of a foreign system's two queues it is, its GUID alone does not tell.
                queues[queue.connector] = f"{node.name}\\connector {guid_text(queue.connector)[:SHORT_GUID]}"
    return Names(
        managers={node.guid: node.name for node in nodes},
        addresses={address: node.name for node in nodes for address in node.addresses},
        hosts={node.host: node.name for node in nodes if shared[node.host] == 1},
        queues=queues,
    )


class _Reading:
    """A capture that is being read: the packets that were asked for, and how it ended.

    findings: the number of findings shown or counted, keyed by severity.
    first_ns: the time of the very first packet.
    damage: the damage at which the capture ends; None if it is intact.
    ring: the given keys; None if there are none.
    forged: whether a signature that was shown is not valid.
    """

    def __init__(
        self, captures: Sequence[Opened], frames: Iterable[Frame], options: Options, names: Names
    ) -> None:
        self.names = names
        self.where = captures[0].where
        self.analyst = Analyst(names)
        self.turns = Turns()
        draws = options.diagram or options.svg is not None
        # Whoever pipes a capture may sit in front of it while it is made.
        ahead = 0 if any(not capture.size_bytes for capture in captures) else AHEAD_COUNT
        self.reader = PacketReader(frames, self.turns if draws else None, ahead)
        self.findings: Counter[Severity] = Counter()
        self.damage: CaptureError | None = None
        self.first_ns = 0
        self.ring = read_keys(tuple(options.keys)) if options.keys else None
        self.forged = False
        self._kinds = kinds_named(options.kinds or [])
        self._sequence = sequence_named(options.sequence) if options.sequence else ""
        self._after = moment_named(options.since) if options.since else None
        self._before = moment_named(options.until) if options.until else None
        self._options = options
        self._chosen: Selection | None = None
        self._captures = captures
        self.prints_as_it_reads = not (
            options.summary or options.follow is not None or options.diagram or options.svg
        )
        self._bar: Progress | None = None

    def everything(self) -> Iterator[Sight]:
        """Yield every packet; a damaged capture ends at the damage."""
        take = self.analyst.take
        with _progress(self._captures) as (bar, update):
            self._bar = bar
            try:
                for count, seen in enumerate(self.reader):
                    if count % PROGRESS_PACKETS == 0:
                        update()
                    yield take(seen)
            except CaptureError as damage:
                self.damage = damage

    def chosen(self) -> Iterator[Sight]:
        """Yield the packets that pass the filters."""
        selection: Selection | None = None
        for sight in self.everything():
            if selection is None:
                self.first_ns = sight.seen.time_ns
                selection = self._chosen = self._selection(self.first_ns)
                everything = selection.takes_all
            if everything or selection.takes(sight, self.names):
                self._make_room()
                yield sight

    def _make_room(self) -> None:
        """Stop the progress bar before writing lines to the terminal, because it would mix with them."""
        if self.prints_as_it_reads and self._bar is not None and sys.stdout.isatty():
            self._bar.stop()
            self._bar = None

    def wants(self, turn: Turn) -> bool:
        """Return whether the beginning or the end of a connection passes the filters."""
        return self._chosen is None or self._chosen.takes_turn(turn, self.names)

    def count(self, findings: list[Finding]) -> None:
        """Record findings that were shown, for the exit status."""
        self.findings.update(finding.severity for finding in findings)

    def last_findings(self) -> list[Finding]:
        """Return the findings that are known only at the end of the capture; call it once."""
        for opened in self._captures:
            self.reader.totals.drop(opened.where, opened.dropped)
        lossless = self.reader.totals.is_complete and self.damage is None
        return list(
            self.analyst.finish(
                lossless=lossless,
                ends=self.reader.ends,
                translations=self.reader.translations.found,
                conflicts=self.reader.totals.conflicts,
            )
        )

    @property
    def unread(self) -> str:
        """If no frame contains a packet, return the kinds of frames after `; `; otherwise an empty text."""
        totals = self.reader.totals
        return f"; {kinds(totals.other_frames)}" if totals.other_frames and not totals.packets else ""

    def status(self) -> int:
        """Return the exit status, and report damage to the file, which takes precedence over findings."""
        if self.damage is not None:
            sys.stdout.flush()
            complain(str(self.damage))
            return MISUSE if self.reader.totals.frames == 0 else FINDING
        return FINDING if self.findings[Severity.FAULT] or self.forged else DONE

    def evidence(self, sight: Sight) -> Evidence | None:
        """Return what the keys prove about a message; None without keys, or if the packet is not a message."""
        if self.ring is None or sight.message is None:
            return None
        evidence = self.ring.evidence(sight.message, sight.seen.cut_bytes)
        sight.findings += evidence.findings(sight.seen.number)
        self.forged = self.forged or evidence.verified is False
        return evidence

    def _selection(self, first_ns: int) -> Selection:
        options = self._options
        return Selection(
            kinds=self._kinds,
            node=options.node,
            queue=options.queue,
            sequence=self._sequence,
            connection=options.connection,
            after_ns=self._after(first_ns) if self._after else None,
            before_ns=self._before(first_ns) if self._before else None,
        )


@contextmanager
def _progress(captures: Sequence[Opened]) -> Iterator[tuple[Progress, Callable[[], None]]]:
    """Show, on a terminal, how much of the files has been read; show nothing in a pipe."""
    console = wide_console(stderr=True)
    size_bytes = sum(opened.size_bytes for opened in captures)
    quiet = not console.is_terminal or not size_bytes

    def update() -> None:
        if not quiet:
            bar.update(task, completed=sum(opened.file.tell() for opened in captures))

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("reading", total=size_bytes or None)
        yield bar, update


def _packets(reading: _Reading, options: Options) -> int:
    """Show each packet as a line, as fields or as JSON; return the exit status."""
    writer = LineWriter(reading.names)
    write = sys.stdout.write
    packets = 0  # Bytes that begin no packet have a line, and are not one.
    limited = False
    for count, sight in enumerate(reading.chosen()):
        if count == options.limit:
            limited = True
            break
        evidence = reading.evidence(sight)
        if options.as_json:
            row = _as_json(sight, reading.names, evidence, fields=options.verbose)
            write(f"{json.dumps(row)}\n")
        else:
            if count == 0 and options.relative:
                writer = LineWriter(reading.names, relative_to_ns=reading.first_ns)
            if heading := writer.heading(sight):
                write(f"{heading}\n")
            write(f"{writer.line(sight)}\n")
            if options.verbose:
                _show_fields(sight)
            if evidence is not None and sight.message is not None:
                lines = evidence_lines(evidence, sight.message.properties.body_type)
                sys.stdout.writelines(f"{'':>8}{line}\n" for line in lines)
            for finding in sight.findings:
                write(f"{'':>8}{finding}\n")
        packets += sight.seen.framed
        reading.count(sight.findings)
    findings = [] if limited else reading.last_findings()
    reading.count(findings)
    if options.as_json:
        sys.stdout.writelines(f"{json.dumps({'finding': finding.as_json()})}\n" for finding in findings)
    else:
        sys.stdout.writelines(f"at the end: {finding}\n" for finding in findings)
        found = ", ".join(counted(reading.findings[severity], severity) for severity in Severity)
        more = ", and more that --limit leaves out" if limited else ""
        write(f"{counted(packets, 'packet')}{more}; {found}{reading.unread}\n")
    return reading.status()


def _as_json(sight: Sight, names: Names, evidence: Evidence | None, *, fields: bool) -> dict[str, Any]:
    queue_name = None if sight.message is None else names.destination(sight.message.user)
    row = row_of(sight, queue_name, evidence).as_json()
    if fields:
        row["fields"] = show.as_json(_inspect(sight))["fields"]
        if evidence is not None and evidence.plain is not None:
            row["plain_body"] = evidence.plain.hex()
    return row


def _inspect(sight: Sight) -> Inspection:
    """Return the fields of a packet. It is inspected as a Ping only if it is a complete Ping."""
    whole = isinstance(sight.seen.packet, Ping)
    return inspect_ping(sight.seen.data) if whole else inspect_packet(sight.seen.data)


def _show_fields(sight: Sight) -> None:
    data = sight.seen.data
    if sight.seen.is_ping and sight.seen.packet is None:
        sys.stdout.write(f"        {data.hex(' ', 4)}\n")
        return
    sys.stdout.flush()
    wide_console().print(show.fields_table(_inspect(sight)))


def _summary(reading: _Reading, options: Options) -> int:
    """Show only the counts; return the exit status."""
    summary = Summary(reading.names)
    for sight in reading.chosen():
        summary.add(sight)
    summary.add_findings(reading.last_findings())
    if reading.damage is not None:
        summary.add_findings([Finding(Severity.NOTE, "damaged-capture", 0, str(reading.damage))])
    points = reading.reader.points.points
    if reading.reader.totals.frames or reading.damage is None:
        if options.as_json:
            print_json(summary.as_json(reading.reader.totals, points))
        else:
            print("\n".join(summary.lines(reading.reader.totals, points)))
    reading.findings[Severity.FAULT] = summary.fault_count
    return reading.status()


def _follow(reading: _Reading, options: Options, target: str) -> int:
    """Show one message, or all messages with a label; return the exit status."""
    follower = Follower(target, reading.names)
    for sight in reading.chosen():
        follower.take(sight)
    reading.last_findings()
    follower.settle(reading.analyst.lacking)
    histories = list(follower.histories.values())
    if options.as_json:
        print_json([history.as_json() for history in histories])
    else:
        for number, history in enumerate(histories):
            print("\n".join(["", *history.lines()] if number else history.lines()))
        if follower.left_out_count:
            print(f"{follower.left_out_count:,} crossings of more such messages; name one by its identifier")
    status = reading.status()
    if not histories and status == DONE:
        complain(
            f"no message {target!r} crosses in this capture; --json shows the identifiers of those that do"
        )
        return FINDING
    return status


def _diagram(reading: _Reading, options: Options) -> int:
    """Draw a ladder diagram, on the terminal or as SVG; return the exit status."""
    limit = options.limit or DIAGRAM_LIMIT
    ladder = Ladder(reading.names, limit, reading.turns.found, reading.wants, unfold=options.verbose)
    for sight in reading.chosen():
        ladder.add(sight)
    for arrow in ladder.arrows:
        reading.count(arrow.findings)
    if options.svg is not None:
        with options.svg.open("w", encoding="utf-8") as file:
            title = f"{len(ladder.arrows):,} packets of {Path(reading.where).name}"
            file.writelines(f"{line}\n" for line in svg(ladder, reading.analyst.label, title))
    if options.diagram:
        console = wide_console()
        width = console.width if console.is_terminal else DIAGRAM_COLUMNS
        for line in ladder.lines(reading.analyst.label, width):
            print(line)
    return reading.status()
