"""`mqproto fuzz`, with its options and its output."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, FINDING, INTERRUPTED, Printout, run_task
from mqproto.simulator.command.options import Commands, JsonOption

if TYPE_CHECKING:
    from mqproto.simulator.fuzz.parser.fuzzer import Report

SECONDS: Final = 60.0

app = Commands(
    help="Send hostile packets to a parser or a live peer; each finding can be repeated.",
)

SecondsOption = Annotated[float, "How long to run, in seconds.", value(min=0.1)]
SeedOption = Annotated[int | None, "The seed, random by default; the same seed makes the same packets."]
OutOption = Annotated[Path, "The folder for findings.", "-o"]


@app.command()
def parser(
    target: Annotated[
        str,
        "module:function that takes the bytes of one packet; by default, our codec. Or one of our readers: "
        "xml, activex, binary and headers for bodies, security for encrypted content, decode for pasted text.",
    ] = "mqproto.wire",
    program: Annotated[str, "Instead of --target: a command that reads one packet from stdin."] = "",
    loop: Annotated[bool, "The command reads many packets, each preceded by its 4-byte length."] = False,
    expect: Annotated[
        list[str] | None, "An exception with which the target may refuse a packet; ValueError by default."
    ] = None,
    seconds: SecondsOption = SECONDS,
    count: Annotated[int | None, "Stop after this many packets.", "-c", value(min=1)] = None,
    seed: SeedOption = None,
    corpus: Annotated[
        list[Path] | None,
        "Packets to start from: a capture, a file with a packet, or a folder of files.",
        value(exists=True),
    ] = None,
    corpus_out: Annotated[
        Path | None,
        "A folder for the initial packets, the packets that took new paths, and a dictionary for AFL++.",
    ] = None,
    out: OutOption = Path("fuzz-findings"),
    limit_s: Annotated[
        float, "Maximum processor seconds per packet; with --program, wall-clock seconds.", value(min=0.1)
    ] = 2,
    memory_mb: Annotated[int, "Memory limit for the target, in MiB.", "--memory", value(min=128)] = 512,
    as_json: JsonOption = False,
) -> int:
    """Feed a parser packets that are mutated according to the protocol's layouts. Status 1 if it does something wrong.

    A parser is wrong if it raises an unexpected exception, or takes too much time or memory. Our own codec is also
    wrong if its generated code and the construct library disagree, or if it does not encode a decoded packet to the
    same bytes.
    """
    from mqproto.simulator.fuzz.parser import fuzzer as fuzzing
    from mqproto.simulator.fuzz.parser.judges import DEFAULT_EXPECTED

    options = fuzzing.Options(
        target=target,
        program=program,
        loop=loop,
        expect=tuple(expect or DEFAULT_EXPECTED),
        seconds=seconds,
        packets=count,
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        corpus=tuple(corpus or ()),
        corpus_out=corpus_out,
        folder=out,
        limit_s=limit_s,
        memory_mb=memory_mb,
    )
    with progress("packets", options.seconds, quiet=as_json) as show:
        report = fuzzing.fuzz_parser(options, lambda so_far: show(so_far.seconds, len(so_far.findings)))
    status = INTERRUPTED if report.interrupted else FINDING if len(report.findings) else DONE
    return Printout(report.as_json(), lines(report), status).show(as_json=as_json)


HostArgument = Annotated[str, ARGUMENT, "HOST, HOST:PORT or [IPv6]:PORT; TCP port 1801 by default."]
PatienceOption = Annotated[float, "Seconds to wait for the peer.", "--timeout", value(min=0.1, max=600)]
RemoteOption = Annotated[bool, "Allow a peer on another machine; ask its owner first.", "--allow-remote"]


@app.command()
def peer(
    host: HostArgument,
    queue: Annotated[
        list[str] | None,
        "A private queue or a direct name to send valid messages to; by default, notes and orders.",
        "-q",
    ] = None,
    identity: Annotated[
        str | None, "The GUID to connect with; by default, one that is unknown to the peer.", "--as"
    ] = None,
    neighbour: Annotated[
        list[str] | None, "The GUID of a queue manager that the peer knows; some cases act in its name."
    ] = None,
    seconds: SecondsOption = SECONDS,
    count: Annotated[int | None, "Stop after this many cases.", "-c", value(min=1)] = None,
    seed: SeedOption = None,
    parallel: Annotated[int, "How many cases to run at once.", value(min=1, max=64)] = 8,
    patience_s: PatienceOption = 15,
    ping_port: Annotated[int, "The UDP port for malformed Pings.", value(min=1, max=65_535)] = 3_527,
    pid: Annotated[int | None, "The id of the peer's process, to watch it.", value(min=1)] = None,
    memory_mb: Annotated[
        int, "With --pid: the MiB by which the process may grow.", "--memory", value(min=16)
    ] = 512,
    out: OutOption = Path("fuzz-findings"),
    allow_remote: RemoteOption = False,
    as_json: JsonOption = False,
) -> int:
    """Hold hostile conversations with a live queue manager. Status 1 if it misbehaves, 2 if it cannot be reached.

    It misbehaves if it hangs, crashes, sends something that the protocol forbids, or stops serving others. It may
    always close a connection. Messages are sent to its queues, so use a peer whose messages nobody needs.
    """
    from mqproto.simulator.fuzz.peer import campaign as fuzzing, target as peers

    seed = secrets.randbelow(1_000_000) if seed is None else seed
    plan = fuzzing.Plan(seed, seconds, count, parallel, folder=out)
    options = peers.Options(
        queues=tuple(queue or peers.DEFAULT_QUEUES),
        presented=peers.read_guid(identity) if identity is not None else None,
        known=tuple(map(peers.read_guid, neighbour or ())),
        ping_port=ping_port,
        patience_s=patience_s,
        allow_remote=allow_remote,
    )
    report: fuzzing.Report | None = None
    status = DONE

    with progress("cases", plan.seconds, quiet=as_json) as show:

        def shown(so_far: fuzzing.Report) -> None:
            nonlocal report
            report = so_far
            show(so_far.seconds, len(so_far.findings))

        try:
            report = run_task(
                partial(peers.fuzz_peer, host, options, plan, pid=pid, growth_mb=memory_mb, show=shown)
            )
            status = FINDING if len(report.findings) else DONE
        except KeyboardInterrupt:
            status = INTERRUPTED
    if report is None:
        return status
    return Printout(report.as_json(), peers.as_lines(report), status).show(as_json=as_json)


@app.command()
def strangers(
    minutes: Annotated[float, "How long to run.", value(min=0.05, max=1_440)] = 10,
    seed: Annotated[
        int | None, "The seed that decides which attack hits which node in which form; random by default."
    ] = None,
    only: Annotated[list[str] | None, "Run only this attack, in all forms, however long it takes."] = None,
    directory: Annotated[Path | None, "A folder for the stores.", "-d"] = None,
    listing: Annotated[bool, "List the attacks without running any.", "--list"] = False,
    as_json: JsonOption = False,
) -> int:
    """Attack three nodes under honest load, again and again. Status 1 if a requirement is not met.

    Each honest message must arrive once, in order, and soon after the attack. Throughput during an attack must be at
    least half of that before it. No node may exceed the limits for memory and log size that are printed at the end.
    """
    from mqproto.simulator.fuzz.hostile import suite, verdict
    from mqproto.simulator.fuzz.hostile.plan import HostilePlan

    if listing:
        verdict.show_attacks()
        return DONE
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    plan = HostilePlan(seed, 60 * minutes, tuple(only or ()), directory=directory)

    def show(ordeal: verdict.Ordeal) -> None:
        if not as_json:
            print(ordeal.line(timed=plan.timed), flush=True)

    report = run_task(partial(suite.run_strangers, plan, show))
    return Printout.of(report, verdict.show_report).show(as_json=as_json)


@app.command()
def repeat(
    file: Annotated[Path, ARGUMENT, "The .toml or .bin file of a finding.", value(exists=True)],
    to: Annotated[
        str | None, "The peer to repeat a conversation with; by default the peer where it was found."
    ] = None,
    as_new: Annotated[
        bool, "Speak as a new queue manager, for a peer that knows the messages of the old one."
    ] = False,
    patience_s: PatienceOption = 15,
    allow_remote: RemoteOption = False,
) -> Printout:
    """Repeat the steps that led to a finding. Status 1 if the finding recurs."""
    from mqproto.simulator.fuzz import findings
    from mqproto.simulator.fuzz.parser import fuzzer as fuzzing
    from mqproto.simulator.fuzz.peer import target

    finding = findings.load(file)
    if finding.how.get("fuzz") == target.FUZZ:
        to = to or str(finding.how.get("peer", ""))
        options = target.Options(patience_s=patience_s, allow_remote=allow_remote)
        fault = run_task(partial(target.repeat, finding, to, options, as_new=as_new))
        seen = None if fault is None else (f"{fault.oracle}: {fault.rule}", fault.detail or finding.detail)
    else:
        seen = fuzzing.repeat(finding)
    value = {"group": finding.group, "seen": seen and {"group": seen[0], "detail": seen[1]}}
    if seen is None:
        return Printout(value, [f"nothing wrong now; it was {finding.group}: {finding.detail}"])
    return Printout(value, [f"{seen[0]}: {seen[1]}", f"  {findings.shown(finding.data)}"], FINDING)


def lines(report: Report) -> Iterator[str]:
    """Yield the lines of the report: packet counts, in total and for each check, and the findings."""
    yield (
        f"{report.target}, seed {report.seed}: {report.packets:,} packets in {report.seconds:,.1f} s, "
        f"{report.rate:,.0f} a second of one core"
    )
    yield f"{report.ways:,} {'way' if report.ways == 1 else 'ways'} through the parser"
    if report.memory_mb:
        yield (
            f"at most {report.slowest_s * 1000:,.1f} ms of processor time for one, and {report.memory_mb} MiB of "
            f"memory, {report.memory_before_mb} of them at the start"
        )
    yield ""
    width = max(map(len, report.questions))
    for question, count in report.questions.items():
        yield f"{question:{width}}  {count:>12,}"
    yield ""
    yield from report.findings.lines()
    count = len(report.findings)
    yield "no finding" if not count else f"{count} {'finding' if count == 1 else 'findings'}"


@contextmanager
def progress(what: str, seconds: float, *, quiet: bool) -> Iterator[Callable[[float, int], None]]:
    """Show a progress bar; in a pipe, show nothing.

    Call the yielded function with the elapsed seconds and the number of findings so far.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from mqproto.simulator.base.screen import wide_console

    console = wide_console(stderr=True)
    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.fields[found]} findings"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, total=seconds, found=0)
        yield lambda gone_s, found: bar.update(task, completed=gone_s, found=found)
