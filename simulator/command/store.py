"""What an operator does with the store of a node: `mqproto store check`, `repair` and `backup`."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from simulator.command.options import (
    DEFAULT_TOPOLOGY,
    DONE,
    FINDING,
    DirectoryOption,
    JsonOption,
    TopologyOption,
    place_of,
    print_json,
)

app = typer.Typer(help="Look after the store of a node, which is set aside and never thrown away.")
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

    from simulator.storage.care import salvaged
    from simulator.storage.files import SYSTEM_FILES

    path = _file_of(store, topology, directory)
    with closing(salvaged(SYSTEM_FILES, path)) as found:
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
    print(f"record {found.record:,} is the newest; the log has {_counted(len(found.records), 'record')}")
    _tell(path, found.findings, found.named_counts(), [*found.findings, *notices])
    if found.findings:
        print(
            f"to keep what is whole: stop its node if it runs, then mqproto store repair {shlex.quote(store)}"
        )
    return FINDING if found.findings else DONE


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
    from simulator.storage.care import repair as repair_store
    from simulator.storage.files import SYSTEM_FILES

    path = _file_of(store, topology, directory)
    date = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    found = repair_store(SYSTEM_FILES, path, date)
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
    from simulator.storage.care import back_up
    from simulator.storage.files import SYSTEM_FILES

    path = _file_of(store, topology, directory)
    made = back_up(SYSTEM_FILES, path, target)
    count = sum(made.counts.values())
    if as_json:
        print_json(
            {"store": str(path), "backup": str(made.path), "record": made.record, "messages": made.counts}
        )
    else:
        witness = f"{made.path.name}-witness"
        moment = f"as of record {made.record:,}"
        print(f"{made.path}: {_counted(count, 'message')}, {moment}; {witness} beside it belongs to it")
    return DONE


def _file_of(store: str, topology: str, directory: Path | None) -> Path:
    if store.endswith(".sqlite") or "/" in store:
        return Path(store)
    from simulator.topology.places import store_path

    place = place_of(topology, directory)
    return store_path(place.directory, place.topology.node_named(store).name)


def _tell(path: Path, findings: list[str], counts: dict[str, int], lines: list[str]) -> None:
    """How many messages are whole, what is to be said, and in a word how the store is."""
    for queue, count in sorted(counts.items()):
        if count:
            print(f"{queue}: {_counted(count, 'message')} {'is' if count == 1 else 'are'} whole")
    for line in lines:
        print(line)
    print(f"{path}: {_counted(len(findings), 'finding') if findings else 'whole'}")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
