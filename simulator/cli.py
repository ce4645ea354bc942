"""The one command, `mqproto`.

Each command is thin: it reads what was typed, and hands on to the module that does it. Those are imported when they
are needed, so that a node starts fast. Exit status 0: done; 1: a finding, or a broken promise; 2: misuse.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar

import typer

from mqproto.errors import FormatNameError, MqprotoError, UsageError

if TYPE_CHECKING:
    from simulator.talk import Place

DONE: Final = 0
FINDING: Final = 1
MISUSE: Final = 2
INTERRUPTED: Final = 130
DEBUG: Final = "MQPROTO_DEBUG"
"""Set to anything, this environment variable has every error shown with its traceback."""

app = typer.Typer(
    name="mqproto",
    help="Message queuing by [MS-MQQB], simulated. Begin with: mqproto demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(help="How fast it is here.", no_args_is_help=True)
app.add_typer(bench, name="bench")

TopologyArgument = Annotated[
    str, typer.Argument(help="A shipped topology, such as three-node, or a .toml file.")
]
TopologyOption = Annotated[
    str,
    typer.Option("--topology", "-t", envvar="MQPROTO_TOPOLOGY", help="A shipped topology or a .toml file."),
]
DirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        envvar="MQPROTO_DIRECTORY",
        help="Where the stores are; one per topology by default.",
    ),
]
NodeOption = Annotated[str | None, typer.Option("--node", "-n", help="The node to talk to.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]

T = TypeVar("T")


@app.command()
def demo(
    source: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="Send each file of this folder, or each line of this file."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="How many orders to generate.")] = 4_000,
    seed: Annotated[int, typer.Option(help="What the generated orders are made from.")] = 0,
    capture: Annotated[
        Path | None, typer.Option(help="The pcapng to write; by default one in a new temporary folder.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Three nodes, traffic, broken links, killed nodes; proof at the end, and a capture for Wireshark."""
    from simulator import demo, screen, workload

    work = workload.from_path(source) if source else workload.orders(count, seed)
    report = _run(partial(demo.run_demo, work, capture, screen.ProgressScreen(quiet=as_json)))
    if as_json:
        _print_json(report.as_json())
    else:
        screen.show_report(report)
    return FINDING if report.broken else DONE


@app.command()
def crash(
    minutes: Annotated[float, typer.Option(min=0.05, max=1_440, help="How long nodes are killed.")] = 10,
    seed: Annotated[
        int | None,
        typer.Option(help="Which nodes and when; a new one if it is left out.", show_default=False),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", "-d", help="A folder for the stores, on the disk to be tried."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Three nodes that are killed at every moment of their lives; status 1 if a message is lost."""
    from simulator import crash, screen

    seed = secrets.randbelow(1_000_000) if seed is None else seed
    report = _run(partial(crash.run_crash, minutes, seed, directory, screen.ProgressScreen(quiet=as_json)))
    if as_json:
        _print_json(report.as_json())
    else:
        screen.show_crash_report(report)
    return FINDING if report.broken else DONE


@app.command()
def run(
    topology: TopologyArgument = "three-node",
    directory: DirectoryOption = None,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Take whatever ports are free on 127.0.0.1.")
    ] = False,
) -> int:
    """Start the nodes of a topology and keep them running, until Ctrl-C."""
    from simulator.running import run_topology

    return _run(partial(run_topology, _place(topology, directory), free_ports=free_ports))


@app.command()
def node(
    topology: TopologyArgument,
    name: Annotated[str, typer.Argument(help="Which of its nodes.")],
    directory: DirectoryOption = None,
    allow_remote: Annotated[bool, typer.Option("--allow-remote", help="Listen beyond loopback.")] = False,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> int:
    """One queue manager in the foreground, until Ctrl-C or SIGTERM."""
    from simulator.node import serve

    place = _place(topology, directory)
    serve(place.topology, name, place.directory, allow_remote=allow_remote, supervised=supervised)
    return DONE


@app.command()
def send(
    queue: Annotated[
        str,
        typer.Argument(
            help=r"Such as 'destination\orders', or any format name; several, separated by commas."
        ),
    ],
    source: Annotated[str | None, typer.Argument(help="- for stdin.", metavar="[-]")] = None,
    body: Annotated[str | None, typer.Option("--body", "-b", help="The body, as text.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="The body is this file.")] = None,
    lines: Annotated[bool, typer.Option("--lines", "-l", help="Each line is one message.")] = False,
    label: Annotated[str, typer.Option(help="Up to 249 characters.")] = "",
    transactional: Annotated[
        bool | None,
        typer.Option(
            "--transactional/--no-transactional",
            help="By default, as the queue is declared.",
            show_default=False,
        ),
    ] = None,
    recoverable: Annotated[bool, typer.Option("--recoverable", help="Kept through restarts.")] = False,
    priority: Annotated[int, typer.Option(min=0, max=7, help="Transactional messages have none.")] = 3,
    topology: TopologyOption = "three-node",
    node: NodeOption = None,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send a message, or one for each line; prints the identifiers."""
    from simulator import talk

    options = talk.SendOptions(label, transactional, recoverable, priority)
    bodies = talk.bodies(body=body, file=file, stdin=source, lines=lines)
    identifiers = _run(partial(talk.send, _place(topology, directory), node, queue, bodies, options))
    if as_json:
        _print_json({"queue": queue, "sent": identifiers})
    else:
        print("\n".join(identifiers))
    return DONE


@app.command()
def receive(
    queue: Annotated[str, typer.Argument(help=r"Such as 'destination\orders'.")],
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="At most so many messages.")] = 1,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait for the next message.")
    ] = 5,
    commit: Annotated[bool, typer.Option("--commit/--rollback", help="Take them, or give them back.")] = True,
    topology: TopologyOption = "three-node",
    node: NodeOption = None,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Receive messages in a transaction; prints the bodies. Status 1 if none came."""
    from simulator import talk

    place = _place(topology, directory)
    show = partial(talk.show_message, as_json=as_json)
    found = _run(partial(talk.receive, place, node, queue, count, timeout_s, commit=commit, show=show))
    if not found:
        _complain(f"no message came to {queue} within {timeout_s:g} s; see what waits where: mqproto queues")
    return DONE if found else FINDING


@app.command()
def peek(
    queue: Annotated[str, typer.Argument(help=r"Such as 'destination\orders'.")],
    count: Annotated[
        int, typer.Option("--count", "-c", min=1, max=500, help="At most so many messages.")
    ] = 1,
    topology: TopologyOption = "three-node",
    node: NodeOption = None,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Look at the first messages of a queue, which stay there. Status 1 if it is empty."""
    from simulator import talk

    messages = _run(partial(talk.peek, _place(topology, directory), node, queue, count))
    for message in messages:
        talk.show_message(message, as_json=as_json)
    if not messages:
        _complain(f"{queue} is empty")
    return DONE if messages else FINDING


@app.command()
def queues(
    topology: TopologyOption = "three-node", directory: DirectoryOption = None, as_json: JsonOption = False
) -> int:
    """What waits where, on every node that runs. Status 1 if none does."""
    from simulator import talk

    place = _place(topology, directory)
    found = _run(partial(talk.statuses, place))
    if as_json:
        _print_json(talk.queues_as_json(found))
    else:
        talk.show_queues(place.topology, found)
    if all(status is None for status in found.values()):
        _complain(f"no node of {place.topology.name} is running; start them: mqproto run {topology}")
        return FINDING
    return DONE


@app.command()
def decode(
    packet: Annotated[
        str, typer.Argument(help="One packet: hex, a file with its bytes or its hex, or - for stdin.")
    ],
    as_json: JsonOption = False,
) -> int:
    """Show every field of a packet, and what is wrong with it. Status 1 if it is not valid."""
    from mqproto.wire.lenient import inspect_packet
    from simulator import screen, show

    data = show.read_source(packet)
    inspection = inspect_packet(data)
    if as_json:
        _print_json(show.as_json(inspection, len(data)))
    else:
        screen.wide_console().print(show.as_table(inspection, len(data)))
    return DONE if inspection.is_valid else FINDING


@app.command()
def probe(
    host: Annotated[str, typer.Argument(help="HOST, HOST:PORT or [IPv6]:PORT; TCP port 1801 by default.")],
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, max=600, help="Seconds that it may take in all.")
    ] = 5,
    ping_port: Annotated[int, typer.Option(min=1, max=65_535, help="The UDP port to ping.")] = 3_527,
    as_json: JsonOption = False,
) -> int:
    """Is this MSMQ, and what does it say? Begins a session, pings, sends no message. Status 1 if it is not.

    \b
    $ mqproto probe 127.0.0.2
    127.0.0.2:1801: MSMQ, accepts a session
      queue manager   07E424EB-0E22-5A45-A7B4-D76CCF04E594
      round trip      0.9 ms, connected in 0.2 ms
      window          64 messages
      timeouts        acknowledges after 500 ms, gives up after 20,000 ms
      flags           0x0210, server class
      ping, UDP 3527  nobody listens
    """
    from simulator import probe as asking

    host, port = asking.target(host)
    report = _run(partial(asking.probe, host, port, ping_port=ping_port, timeout_s=timeout_s))
    if as_json:
        _print_json(asking.as_json(report))
    else:
        print("\n".join(asking.as_lines(report)))
    return DONE if report.is_msmq else FINDING


@app.command()
def simulate(
    seeds: Annotated[int, typer.Option(min=1, help="How many worlds to run.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The seed of the first of them.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Run this one world, and show it.")] = None,
    scenario: Annotated[
        Path | None, typer.Option(help="Run the world that is written in this file.", exists=True)
    ] = None,
    shrink: Annotated[bool, typer.Option("--shrink", help="Find a smaller world that still breaks.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Print all that happens in it.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the world to this file.")] = None,
    plant: Annotated[
        str | None, typer.Option(help="Plant a fault in the core, to see that it is found.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="How many to use; one for each core by default.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Whole systems on a clock that jumps, with everything that can go wrong. Status 1 if an invariant breaks."""
    from simulator.world import command

    options = command.Options(
        seed=seed,
        seeds=seeds,
        first=first,
        scenario=scenario,
        save=save,
        plant=plant,
        shrink=shrink,
        trace=trace,
        processes=processes,
        as_json=as_json,
    )
    return DONE if command.run(options) else FINDING


RoundsOption = Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")]
MessagesOption = Annotated[
    int, typer.Option("--messages", "-m", min=1, help="How many go through the chain at full speed.")
]
RunsOption = Annotated[int, typer.Option(min=1, help="Runs of the chain at full speed; the median counts.")]
WindowOption = Annotated[int, typer.Option(min=1, max=32_767, help="WindowSize of every session.")]
BodyOption = Annotated[int, typer.Option("--body-bytes", min=0, max=1_000_000)]


@bench.command("codec")
def bench_codec(rounds: RoundsOption = 51, as_json: JsonOption = False) -> int:
    """The generated codec against construct interpreting the same layouts."""
    return _bench(as_json, rounds=rounds)


@bench.command("chain")
def bench_chain(
    messages: MessagesOption = 30_000,
    runs: RunsOption = 3,
    window: WindowOption = 64,
    body_bytes: BodyOption = 1_024,
    as_json: JsonOption = False,
) -> int:
    """Three node processes, every message on disk before it is acknowledged."""
    return _bench(as_json, messages=messages, runs=runs, window=window, body_bytes=body_bytes)


@bench.command("backlog")
def bench_backlog(
    messages: Annotated[
        int, typer.Option("--messages", "-m", min=1, help="How many wait for the destination.")
    ] = 100_000,
    as_json: JsonOption = False,
) -> int:
    """The destination is down, messages pile up, it comes back. Status 1 if a node needs over 150 MB."""
    return _bench(as_json, backlog=messages)


@bench.command("all")
def bench_all(
    rounds: RoundsOption = 51,
    messages: MessagesOption = 30_000,
    runs: RunsOption = 3,
    window: WindowOption = 64,
    body_bytes: BodyOption = 1_024,
    backlog: Annotated[
        int, typer.Option("--backlog", min=1, help="How many wait for the destination.")
    ] = 100_000,
    as_json: JsonOption = False,
) -> int:
    """All of them: codec, chain and backlog."""
    return _bench(
        as_json,
        rounds=rounds,
        messages=messages,
        runs=runs,
        window=window,
        body_bytes=body_bytes,
        backlog=backlog,
    )


def _bench(
    as_json: bool,
    *,
    rounds: int = 0,
    messages: int = 0,
    runs: int = 3,
    window: int = 64,
    body_bytes: int = 1_024,
    backlog: int = 0,
) -> int:
    from simulator import backlog as waiting
    from simulator import bench, chain, screen

    figures: dict[str, Any] = {"machine": bench.machine()}
    if rounds:
        figures["codec"] = bench.bench_codec(rounds)
    if messages:
        figures["chain"] = _run(partial(chain.bench_chain, messages, window, body_bytes, runs=runs))
    if backlog:
        figures["backlog"] = _run(partial(waiting.bench_backlog, backlog))
    if as_json:
        _print_json(screen.figures_as_json(figures))
    else:
        screen.show_figures(figures)
    return FINDING if "backlog" in figures and figures["backlog"].over_limit else DONE


def main() -> NoReturn:
    """Run the command and exit. Whatever goes wrong is one line."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run the command, report what goes wrong in one line, and return the exit status."""
    debug = bool(os.environ.get(DEBUG))
    try:
        return int(app(arguments, prog_name="mqproto", standalone_mode=False) or DONE)
    except typer.TyperException as misuse:
        text = misuse.format_message()
        if text.startswith("Usage:"):  # A command alone, without what it needs, asks for its help.
            print(text, file=sys.stderr)
        else:
            _complain(f"{' '.join(text.split()).rstrip('.')}; see mqproto --help")
        return MISUSE
    except (UsageError, FormatNameError) as error:
        if debug:
            raise
        _complain(str(error))
        return MISUSE
    except MqprotoError as error:
        if debug:
            raise
        _complain(str(error))
        return FINDING
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        # Typer makes an exit with status 1 of it.
        # Whoever read our output has had enough; Python would complain again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}; for where it happened set {DEBUG}=1 and repeat")
        return FINDING
    except Exception as bug:
        if debug:
            raise
        inner = _only(bug)
        _complain(
            f"a bug in mqproto: {type(inner).__name__}: {inner}; to see where, set {DEBUG}=1 and repeat"
        )
        return FINDING


def _complain(text: str) -> None:
    print(f"mqproto: {' '.join(text.splitlines())}", file=sys.stderr)


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def _place(topology: str, directory: Path | None) -> Place:
    from simulator.talk import Place

    return Place.of(topology, directory)


def _run(task: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run under trio. One error that came through nurseries is that error."""
    import trio

    try:
        return trio.run(task)
    except BaseExceptionGroup as group:
        raise _only(group) from None


def _only(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    main()
