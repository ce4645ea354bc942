"""What an operator does with the store of a node: `mqproto store check`, `backup`, `export`, `repair` and `adopt`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from mqproto.base.errors import UsageError
from mqproto.base.words import counted
from mqproto.simulator.base.logfile import private
from mqproto.simulator.base.program.environment import DEFAULT_TOPOLOGY
from mqproto.simulator.command.options import (
    DONE,
    FINDING,
    DirectoryOption,
    JsonOption,
    TopologyOption,
    complain,
    place_of,
    print_json,
)

if TYPE_CHECKING:
    from mqproto.simulator.storage.care import Salvage
    from mqproto.simulator.topology import Topology
    from mqproto.simulator.topology.nodes import Node

app = typer.Typer(help="Look after the store of a node. Nothing is overwritten, and nothing thrown away.")
SAID_EVERY: Final = 1_000
"""Messages between two words of how far an export is."""
StoreArgument = Annotated[
    str, typer.Argument(metavar="NODE|FILE", help="A node, or the .sqlite file of its store.")
]


@app.command()
def check(
    store: StoreArgument,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Read a whole store, and tell what in it is not what was written. Status 1 if anything is not.

    Nothing is changed. A node that runs goes on: its tables and its log are read as they are at one moment, after the
    record that is said; what it writes later is not looked at, nor are express messages that its memory alone has.
    """
    from contextlib import closing

    from mqproto.simulator.base.screen import working
    from mqproto.simulator.storage.care import salvaged
    from mqproto.simulator.storage.files import SYSTEM_FILES

    path = _file_of(store, topology, directory)
    with working(f"reading {path.name}"), closing(salvaged(SYSTEM_FILES, path)) as found:
        notices = list(found.notices)
        if found.is_running:
            notices.append(
                f"its node runs: this is the store after record {found.record:,}; what came later was not looked at"
            )
    if as_json:
        print_json(
            {
                "store": str(path),
                "record": found.record,
                "running": found.is_running,
                "messages": found.named_counts(),
                "findings": found.findings,
                "notices": notices,
            }
        )
        return FINDING if found.findings else DONE
    print(f"record {found.record:,} is the newest; the log has {counted(len(found.records), 'record')}")
    counts = _as_people_call_them(found, topology, directory)
    _tell(path, found.findings, counts, [*found.findings, *notices])
    if found.findings:
        command = f"mqproto store repair {shlex.quote(str(path))}"
        first = (
            "to keep what is whole" if counts else "put back a backup; without one, to keep what the log has"
        )
        print(f"{first}{', stop its node, then' * found.is_running}: {command}")
    return FINDING if found.findings else DONE


@app.command()
def backup(
    store: StoreArgument,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|FILE", help="A folder, which is made if it is not there, or a .sqlite file."
        ),
    ],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Copy a store as it is at one moment; its node may run. Nothing that is there already is overwritten.

    The copy is a whole store of two files, NAME.sqlite and NAME.sqlite-witness, and was read from end to end. It has
    all that the node had answered before the command was typed, but for express messages that its memory alone has. A
    store that is hurt is not copied.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.storage.care import back_up
    from mqproto.simulator.storage.files import SYSTEM_FILES

    path = _file_of(store, topology, directory)
    with working(f"copying {path.name}, and reading the copy"):
        made = back_up(SYSTEM_FILES, path, target)
    count = sum(made.counts.values())
    if as_json:
        print_json(
            {"store": str(path), "backup": str(made.path), "record": made.record, "messages": made.counts}
        )
    else:
        witness = f"{made.path.name}-witness"
        moment = f"as of record {made.record:,}"
        print(f"{made.path}: {counted(count, 'message')}, {moment}; {witness} beside it belongs to it")
    return DONE


@app.command()
def export(
    store: StoreArgument,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="A queue; repeatable. By default all.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write to this file, which must not be there; by default to stdout.", show_default=False
        ),
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
) -> int:
    """Write all messages of a store as text, one a line; its node may run.

    A line is a JSON object, and all lines are of one moment. What is not whole is named on stderr and left out, with
    status 1. `mqproto send --import FILE` sends what is there. The packet, in hex, is the message; the fields beside it
    are for people.

    \b
    $ mqproto store export destination --queue orders --out orders.jsonl
    $ jq -r .label orders.jsonl
    $ mqproto send --import orders.jsonl
    """
    from contextlib import closing

    from mqproto.simulator.base.screen import working
    from mqproto.simulator.storage.care import salvaged
    from mqproto.simulator.storage.care.export import exported, line_of
    from mqproto.simulator.storage.files import SYSTEM_FILES

    path = _file_of(store, topology, directory)
    with working(f"reading {path.name}") as say, closing(salvaged(SYSTEM_FILES, path)) as found:
        chosen = None if not queue else _chosen(found, queue, place_of(topology, directory).topology)
        for text in (*found.findings, *found.notices):
            complain(text)
        count = 0
        with _written(out) as file:
            for message in exported(found, chosen):
                file.write(f"{line_of(message)}\n")
                count += 1
                if count % SAID_EVERY == 0:
                    say(f"{count:,} messages written")
    print(
        f"{out or path}: {counted(count, 'message')}, as of record {found.record:,}",
        file=sys.stderr if out is None else sys.stdout,
    )
    return FINDING if found.findings else DONE


@contextmanager
def _written(out: Path | None) -> Iterator[TextIO]:
    """A new file that is there only if all of it is; or the standard output."""
    if out is None:
        yield sys.stdout
        return
    try:
        with open(out, "x", encoding="utf-8", opener=private) as file:
            try:
                yield file
                file.flush()
            except BaseException:
                out.unlink()
                raise
    except FileExistsError:
        raise UsageError(f"{out}: it is there already: name another file") from None
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror}: name another file, or make room") from None


def _chosen(found: Salvage, names: list[str], topology: Topology) -> set[int]:
    """The numbers of the queues that are called so, by their own names or as people call them.

    Raises:
        UsageError: the store has none of that name.
    """
    from mqproto.simulator.topology.directory import known_as

    called: dict[str, set[int]] = {}
    for number, row in found.queues.items():
        known = known_as(topology, row.name)
        for name in {row.name, known, known.rpartition("\\")[2], f"{found.path.stem}\\{row.name}"}:
            called.setdefault(name.casefold(), set()).add(number)
    chosen = set()
    for name in names:
        if name.casefold() not in called:
            there = ", ".join(sorted({known_as(topology, row.name) for row in found.queues.values()}))
            raise UsageError(f"{found.path} has no queue {name}; it has {there or 'none'}")
        chosen |= called[name.casefold()]
    return chosen


@app.command()
def repair(
    store: StoreArgument,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Keep what is whole in a store, and set the old one aside as it is. Status 1 if anything was not whole.

    The old files and a list of what is hurt in them go to FILE-quarantine-DATE. What a lost record of the log had taken
    from a queue may be delivered again.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.storage.care import repair as repair_store
    from mqproto.simulator.storage.files import SYSTEM_FILES

    path = _file_of(store, topology, directory)
    with working(f"reading {path.name}"):
        found = repair_store(SYSTEM_FILES, path, _date())
    if as_json:
        print_json(
            {
                "store": str(path),
                "messages": found.counts,
                "findings": found.findings,
                "quarantine": str(found.quarantine) if found.quarantine else None,
            }
        )
    else:
        _tell(path, found.findings, found.counts, found.findings)
        if found.quarantine is None:
            print("nothing is hurt, and nothing was changed")
        else:
            print(f"set aside as it was, with this list: {found.quarantine}")
            print("in its place is a store of the rest: look at what is missing, then start the node")
    return FINDING if found.findings else DONE


@app.command()
def adopt(
    store: StoreArgument,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    directory: DirectoryOption = None,
    moved: Annotated[bool, typer.Option("--moved", help="Nothing goes on where the store was.")] = False,
    copied: Annotated[bool, typer.Option("--copied", help="The store goes on where it was.")] = False,
) -> int:
    """Say what a store is that lies in another place than it was in, so that its node starts again.

    One that was moved begins a new life here, with all that waits in it; that may have been delivered already, and
    is listed when the node starts. Of one that was copied what waits stays with the original: the copy is set aside in
    FILE-copied-DATE, and its node, which needs a GUID of its own, begins with an empty store.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.storage.care import adopt_moved, set_aside_copied
    from mqproto.simulator.storage.files import SYSTEM_FILES

    if moved == copied:
        raise UsageError(
            "say which: --moved if nothing goes on where the store was, --copied if that store does"
        )
    path, node = _named(store, topology, directory)
    guid = node.guid if node is not None else None
    if moved:
        with working(f"reading {path.name}"):
            life = adopt_moved(SYSTEM_FILES, path, guid)
        print(f"{path}: life {life.number} begins when its node starts")
    else:
        aside = set_aside_copied(SYSTEM_FILES, path, guid, _date())
        print(f"set aside as it was: {aside}")
        print(f"{path}: its node begins with an empty store")
        if node is None:
            print("the node needs a GUID of its own, which nobody looks at where a file is named")
    return DONE


def _date() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def _named(store: str, topology: str, directory: Path | None) -> tuple[Path, Node | None]:
    """The file that is meant, and its node, if that was named."""
    if store.endswith(".sqlite") or "/" in store:
        return Path(store), None
    from mqproto.simulator.topology.places import store_path

    place = place_of(topology, directory)
    node = place.topology.node_named(store)
    return store_path(place.directory, node.name), node


def _file_of(store: str, topology: str, directory: Path | None) -> Path:
    return _named(store, topology, directory)[0]


def _as_people_call_them(found: Salvage, topology: str, directory: Path | None) -> dict[str, int]:
    """How many messages each queue has, also none; by its own name and, if the topology knows it, by its usual one."""
    from mqproto.simulator.topology.directory import known_as

    known = place_of(topology, directory).topology
    counts: dict[str, int] = {}
    for number in {*found.queues, *found.counts}:
        called, row = found.name_of(number), found.queues.get(number)
        usual = known_as(known, row.name) if row else ""
        if row and usual != row.name:
            called = f"{called} ({usual})"
        counts[called] = counts.get(called, 0) + found.counts[number]
    return counts


def _tell(path: Path, findings: list[str], counts: dict[str, int], lines: list[str]) -> None:
    """How many messages are whole, what is to be said, and in a word how the store is."""
    for queue, count in sorted(counts.items()):
        if count:
            print(f"{queue}: {counted(count, 'message')} {'is' if count == 1 else 'are'} whole")
    if not any(counts.values()):
        print("no message waits" if counts or not findings else "no message can be read")
    for line in lines:
        print(line)
    print(f"{path}: {counted(len(findings), 'finding') if findings else 'whole'}")
