"""The single command `mqproto`.

Each of its subcommands is thin: it reads the command line, and calls the module that does the work. Such a module is
imported when it is needed, so that a node starts fast. The exit status is 0 if all went well, 1 for a finding or a
broken promise, and 2 for misuse.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shlex
import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.main import get_command

from mqproto.base.errors import FormatNameError, MqprotoError, UsageError
from mqproto.simulator.base.program.again import AGAIN
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.environment import DEFAULT_TOPOLOGY
from mqproto.simulator.base.program.extras import to_install, version_line
from mqproto.simulator.base.program.output import (
    DONE,
    FINDING,
    INTERRUPTED,
    MISUSE,
    Printout,
    complain,
    only_one,
    run_task,
)
from mqproto.simulator.base.program.settings import RENAMED, plainly
from mqproto.simulator.cli import breaking, commands, keys, store
from mqproto.simulator.cli.choosing import only
from mqproto.simulator.cli.helping import ByTask, worded
from mqproto.simulator.cli.node import node
from mqproto.simulator.cli.queues import app as queue_app
from mqproto.simulator.cli.service import command as services
from mqproto.simulator.command import analysis, decoding, peers, reporting, tokens
from mqproto.simulator.command.edges import gateway, trigger
from mqproto.simulator.command.failed import audit, erase, failed
from mqproto.simulator.command.options import (
    Commands,
    DirectoryOption,
    JsonOption,
    TopologyOption,
    WaypointsOption,
)
from mqproto.simulator.command.simulating import WorldOptions
from mqproto.simulator.console import command as live
from mqproto.simulator.edges.options import HistoryOption, TracesOption
from mqproto.simulator.fuzz import commands as fuzz
from mqproto.simulator.replay.options import ReplayOptions

if TYPE_CHECKING:
    from mqproto.simulator.topology.places import Place

__all__ = ["DONE", "FINDING", "MISUSE", "app", "main", "run_command"]

DEBUG: Final = "MQPROTO_DEBUG"
"""The environment variable that, if set to anything, makes every error appear with its traceback."""
WITH_PASSWORD: Final = re.compile(r"(--[a-z-]+=)?postgresql(\+\w+)?://([^/?@]*:[^/@]+@|.*[?&]password=.)")
NO_PASSWORD: Final = (
    "`ps` shows everybody on this machine the password in the database's URL: leave it out, and write a line "
    "HOST:PORT:DATABASE:USER:PASSWORD into ~/.pgpass, or into the file that PGPASSFILE names, which only you may read"
)

SURROGATES: Final = re.compile("[\ud800-\udfff]")
"""Matches an argument that is not in UTF-8: Python keeps its other bytes as surrogates."""
STEPS: Final = re.compile("\\s*(?:\x1b\\[\\d+m)?↳(?:\x1b\\[0m)?\\s*")
"""Matches what is before each step in deltalake's errors about storage; on a terminal the arrows are red."""
TOO_MANY: Final = "unexpected extra argument"

MISNAMED: Final = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
"""The errors for a path that cannot be used, such as an output file in a folder that does not exist."""
LET_IN: Final = "let this user in there, or name another place"
ADVICE: Final = {
    errno.EACCES: LET_IN,
    errno.EPERM: LET_IN,
    errno.EROFS: "name another place",
    errno.ENOSPC: "make room there, or name another place",
}
"""What a user can do about an error of the operating system, by its number."""
REPEAT: Final = f"for where it happened set {DEBUG}=1 and repeat"

app = Commands(
    name="mqproto",
    cls=ByTask,
    help="Simulate message queuing as specified in [MS-MQQB]. Begin with: mqproto demo",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(fuzz.app, name="fuzz")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(version_line())
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, "Show the version and exit.", "--version", value(callback=_show_version, is_eager=True)
    ] = False,
    _json: JsonOption = False,
    _topology: TopologyOption = DEFAULT_TOPOLOGY,
    _directory: DirectoryOption = None,
) -> None:
    """Take the options that precede a command."""


@app.command()
def demo(
    source: Annotated[
        Path | None, "Send each file of this folder, or each line of this file.", "--input", "-i"
    ] = None,
    count: Annotated[
        int | None,
        "How many orders to generate: by default 4,000, or 2,000 with --edges.",
        "-c",
        value(min=1, max=100_000),
    ] = None,
    seed: Annotated[int, "The seed of the generated orders."] = 0,
    capture: Annotated[Path | None, "The pcapng to write; by default one in a new temporary folder."] = None,
    edges: Annotated[bool, "Use HTTP at both ends, and kill the gateway and the trigger too."] = False,
    rough: Annotated[
        bool, "With --edges: also fill and purge the queue, and keep the consumer down for a while."
    ] = False,
    history: HistoryOption = "",
    as_json: JsonOption = False,
) -> int:
    """Run three nodes, break links and kill nodes; prove that nothing was lost, and write a capture.

    With --edges, producers and a consumer use HTTP and fail the way real ones do; each message is still processed once.
    """
    from mqproto.simulator.base.screen import ProgressScreen

    screen = ProgressScreen(quiet=as_json)
    if edges:
        from mqproto.simulator.edges.history.databases import engine_for, parsed
        from mqproto.simulator.rig.validation.demo import run_edges_demo
        from mqproto.simulator.rig.validation.report import show

        if source or capture:
            raise UsageError("--edges makes its own orders and no capture: leave --input and --capture out")
        if history:
            engine_for(parsed(history))
        run = partial(run_edges_demo, count or 2_000, seed, history=history, rough=rough, screen=screen)
        return Printout.of(run_task(run), show).show(as_json=as_json)
    from mqproto.simulator.rig import demo
    from mqproto.simulator.rig.load import workload
    from mqproto.simulator.rig.report import show_report

    if history or rough:
        raise UsageError(f"{'--history' if history else '--rough'} is for --edges")
    work = workload.from_path(source) if source else workload.orders(count or 4_000, seed)
    return Printout.of(run_task(partial(demo.run_demo, work, capture, screen)), show_report).show(
        as_json=as_json
    )


@app.command()
def crash(
    minutes: Annotated[float, "How many minutes to run.", value(min=0.05, max=1_440)] = 10,
    seed: Annotated[int | None, "The seed that decides which nodes die and when; random by default."] = None,
    directory: Annotated[Path | None, "A folder for the stores, on the disk to test.", "-d"] = None,
    topology: Annotated[
        str, "A topology with a node sender, and a node destination with the queues orders and notes.", "-t"
    ] = "three-node",
    kills: Annotated[bool, "Whether to kill nodes at all."] = True,
    keys: Annotated[bool, "Encrypt and sign messages, and replace the nodes' keys during the run."] = False,
    as_json: JsonOption = False,
) -> int:
    """Kill three nodes again and again, at random moments. Status 1 if a message is lost."""
    from mqproto.simulator.base.screen import ProgressScreen
    from mqproto.simulator.rig import crash
    from mqproto.simulator.rig.report import show_crash_report
    from mqproto.simulator.topology import load

    seed = secrets.randbelow(1_000_000) if seed is None else seed
    report = run_task(
        partial(
            crash.run_crash,
            minutes,
            seed,
            directory,
            ProgressScreen(quiet=as_json),
            load(topology),
            kills=kills,
            keys=keys,
        )
    )
    return Printout.of(report, show_crash_report).show(as_json=as_json)


@app.command()
def run(
    place: Place,
    free_ports: Annotated[bool, "Use free ports of 127.0.0.1."] = False,
    metrics: Annotated[
        str | None,
        "Serve /metrics, /live and /ready: the first node at PORT (9180), the others at the ports after it.",
        value("HOST[:PORT]"),
    ] = None,
    traces: TracesOption = "",
    capture: Annotated[
        Path | None, "Record the connections of each node in a separate file, FILE-NODE.pcapng."
    ] = None,
    breakable: Annotated[
        bool | None,
        "Whether links go through proxies, which mqproto cut, stall and slow need; by default they do, except "
        "with --capture.",
        "--breakable/--direct",
    ] = None,
    console: Annotated[
        bool, "Serve a page that shows the nodes live and lets you break them; implies --waypoints."
    ] = False,
    waypoints: WaypointsOption = False,
) -> int:
    """Start the nodes of a topology and keep them running, until Ctrl-C.

    To break and mend them from another terminal, use mqproto kill, restart, cut, stall, slow and mend.

    \b
    $ mqproto run --console
    $ mqproto run
    $ mqproto cut sender intermediate    # in another terminal
    $ mqproto mend
    """
    from mqproto.simulator.cli.running import run_topology

    page = live.beside if console else None
    if waypoints or page is not None:
        place = place.with_waypoints()
    if free_ports:
        place = place.with_free_ports()
    if metrics is not None:
        place = place.with_metrics(metrics)  # Who names a port means that one.
    if traces:
        place = place.with_traces(traces)
    if breakable is None:
        breakable = capture is None
    return run_task(partial(run_topology, place, capture=capture, breakable=breakable, console=page))


app.command()(node)
for command in (
    commands.send,
    commands.receive,
    commands.peek,
    commands.queues,
    commands.top,
    commands.explain,
    commands.history,
    commands.validate,
    commands.pause,
    commands.resume,
    commands.purge,
):
    app.command()(command)
app.command("return")(commands.send_back)


for deed in (breaking.kill, breaking.restart, breaking.cut, breaking.stall, breaking.slow, breaking.mend):
    app.command()(deed)
app.add_typer(queue_app, name="queue")
app.add_typer(peers.app, name="peers")
app.add_typer(store.app, name="store")
app.add_typer(failed, name="failed")
app.add_typer(keys.app, name="keys")
app.add_typer(tokens.app, name="tokens")
app.add_typer(services.config, name="config")
app.add_typer(services.service, name="service")
app.command()(gateway)
app.command()(trigger)
app.command()(audit)
app.command()(live.console)
app.command()(erase)
app.command()(decoding.decode)
app.command()(analysis.analyse)
app.command()(reporting.report)
app.command()(reporting.tables)


@app.command()
def wireshark() -> int:
    """Print a dissector in Lua for Wireshark and tshark, with every field of every packet as msmq.*

    \b
    $ mqproto wireshark > msmq.lua
    $ tshark -X lua_script:msmq.lua -r FILE -Y msmq
    $ tshark -X lua_script:msmq.lua -r FILE -Y msmq.malformed -V

    Wireshark loads it from the Personal Lua Plugins folder (see Help, About, Folders).
    """
    from mqproto.captures.wireshark import dissector

    print(dissector(), end="")
    return DONE


@app.command()
def probe(
    host: Annotated[str, ARGUMENT, "HOST, HOST:PORT or [IPv6]:PORT; TCP port 1801 by default."],
    timeout_s: Annotated[float, "Total seconds to wait.", value(min=0.1, max=600)] = 5,
    ping_port: Annotated[int, "The UDP port to ping.", value(min=1, max=65_535)] = 3_527,
) -> Printout:
    """Ping HOST and open a session without messages, to find out whether MSMQ listens there. Status 1 if it does not.

    \b
    $ mqproto probe 127.0.0.2
    127.0.0.2:1801: MSMQ, accepts a session
      queue manager   07E424EB-0E22-5A45-A7B4-D76CCF04E594
      round trip      0.9 ms, connected in 0.2 ms
      window          64 messages
      timeouts        acknowledges after 500 ms, gives up after 20,000 ms
      flags           0x0210, about who asked: the system there is not known
      ping, UDP 3527  nobody listens
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.command import probe as asking

    host, port = asking.target(host)
    with working(f"asking {host}:{port}"):
        report = run_task(partial(asking.probe, host, port, ping_port=ping_port, timeout_s=timeout_s))
    return Printout(asking.as_json(report), asking.as_lines(report), DONE if report.is_msmq else FINDING)


@app.command()
def simulate(options: WorldOptions) -> int:
    """Simulate whole systems with everything that can go wrong. Status 1 if an invariant breaks."""
    from mqproto.simulator.world import command

    return DONE if command.run(options) else FINDING


@app.command()
def replay(place: Place, options: ReplayOptions) -> Printout:
    """Replay a captured conversation to a live peer, and compare its answers with the capture. Status 1 if they differ.

    \b
    $ mqproto replay run-sender.pcapng --to 127.0.0.2
    $ mqproto replay run-sender.pcapng --message 'order 7' --node sender
    """
    from mqproto.simulator.replay import command

    if options.node is not None:
        old, queue, new = run_task(partial(command.send_again, options, place, options.node))
        text = f"{old} is sent again to {queue}, as {new}"
        return Printout({"message": old, "queue": queue, "id": str(new)}, [text])
    report = run_task(partial(command.replay, options))
    return Printout(report.as_json(), report.as_lines(), FINDING if report.differences else DONE)


@cache
def command_named(name: str) -> Callable[..., Any]:
    """Return the function that runs the command with this name, or that lists the commands."""
    return command_of(only(app, name))


def command_of(some: typer.Typer) -> Callable[..., Any]:
    """Return the whole app as one command, whose help describes values in our own words."""
    command: Callable[..., Any] = worded(get_command(some))
    return command


def main() -> NoReturn:
    """Run the command and exit. Any error becomes one line."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run the command, report any error in one line, and return the exit status."""
    debug = bool(os.environ.get(DEBUG))
    if any(map(WITH_PASSWORD.match, arguments)):
        complain(NO_PASSWORD)
    try:
        command = command_named(arguments[0] if arguments else "")
        status = int(command(arguments, prog_name="mqproto", standalone_mode=False) or DONE)
        AGAIN.begin()
        return status
    except typer.TyperException as misuse:
        _explain(misuse, arguments)
        return MISUSE
    except (UsageError, FormatNameError) as error:
        if debug:
            raise
        complain(str(error))
        return MISUSE
    except MqprotoError as error:
        if debug:
            raise
        complain(str(error))
        return FINDING
    except KeyboardInterrupt:
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as end:
        if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
            raise
        # Typer makes an exit with status 1 of it.
        # The reader of our output has had enough; Python would complain again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        if debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        if isinstance(error, MISNAMED) and _was_typed(str(error.filename), arguments):
            first = "make its folder first, or " if isinstance(error, FileNotFoundError) else ""
            complain(f"{where}{error.strerror}; {first}name another")
            return MISUSE
        said = error.strerror or STEPS.sub(": ", str(error)).strip()
        complain(f"{where}{said}; {ADVICE.get(error.errno or 0, REPEAT)}")
        return FINDING
    except Exception as bug:
        if debug:
            raise
        if isinstance(bug, ModuleNotFoundError) and (advice := to_install(bug, arguments)) is not None:
            complain(advice)
            return MISUSE
        inner = only_one(bug)
        if isinstance(inner, UnicodeError) and (odd := [*filter(SURROGATES.search, arguments)]):
            complain(f"{odd[0]!r} is not in UTF-8: type it in UTF-8")
            return MISUSE
        complain(f"a bug in mqproto: {type(inner).__name__}: {inner}; to see where, set {DEBUG}=1 and repeat")
        return FINDING


def _explain(misuse: typer.TyperException, arguments: list[str]) -> None:
    """Explain what is wrong with the command line, and where help can be found."""
    text = misuse.format_message()
    if text.startswith("Usage:"):  # A command alone, without what it needs, asks for its help.
        print(text, file=sys.stderr)
        return
    context = getattr(misuse, "ctx", None)
    asked = context.command_path if context is not None else " ".join(["mqproto", *arguments[:1]])
    text = plainly(" ".join(text.split()).rstrip(".?"))
    given: list[dict[str, Any]] = getattr(misuse.__cause__, "errors", list)()
    if given:
        text = text.replace("Invalid value", f"Invalid value {given[0]['input']!r}", 1)
    if now := RENAMED.get(f"{asked} {getattr(misuse, 'option_name', '')}"):
        text = f"{text.split('(')[0].strip()}; it is --{now} now"
    if TOO_MANY in text:
        text += _how_a_topology_is_named(arguments)
    complain(f"{text}; see {asked} --help")


def _how_a_topology_is_named(arguments: list[str]) -> str:
    """Return advice if there is one argument too many and one of them is a topology; otherwise return ""."""
    from mqproto.simulator.topology import shipped

    known = shipped()
    for before, argument in pairwise(arguments):
        is_typed_alone = not before.startswith("-") and not argument.startswith("-")
        if is_typed_alone and (argument in known or argument.endswith(".toml")):
            return f": a topology is named with --topology {shlex.quote(argument)}"
    return ""


def _was_typed(path: str, arguments: list[str]) -> bool:
    """Return whether a path was typed as an argument or after `--option=`, or is in a folder that was."""
    typed = (Path(text).absolute() for each in arguments for text in (each, each.partition("=")[2]) if text)
    return any(Path(path).absolute().is_relative_to(one) for one in typed)


if __name__ == "__main__":
    main()
