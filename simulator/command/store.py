"""What an operator does with the store of a node: `mqproto store check`, `repair` and `adopt`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from simulator.topology.nodes import Node

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

    Nothing is changed. Of a node that runs the tables are read, and not its log, which changes.
    """
    from contextlib import closing

    from simulator.base.storeerrors import StoreError
    from simulator.storage.care import salvaged
    from simulator.storage.files import SYSTEM_FILES

    path = _file_of(store, topology, directory)
    if not path.exists():
        found = salvaged(SYSTEM_FILES, path)
    else:
        try:
            with closing(SYSTEM_FILES.lock(path)):
                found = salvaged(SYSTEM_FILES, path)
        except StoreError:
            found = salvaged(SYSTEM_FILES, path, with_log=False)
    if found.records and not as_json:
        print(f"the log: {_whole(len(found.records), 'record')}")
    return _told(path, found.findings, found.named_counts(), None, as_json=as_json)


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
    found = repair_store(SYSTEM_FILES, path, _date())
    return _told(path, found.findings, found.counts, found.quarantine, as_json=as_json)


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
    from mqproto.base.errors import UsageError
    from simulator.storage.care import adopt_moved, set_aside_copied
    from simulator.storage.files import SYSTEM_FILES

    if moved == copied:
        raise UsageError(
            "say which: --moved if nothing goes on where the store was, --copied if that store does"
        )
    path, node = _named(store, topology, directory)
    guid = node.guid if node is not None else None
    if moved:
        life = adopt_moved(SYSTEM_FILES, path, guid)
        print(f"{path}: life {life.number} begins when its node starts")
    else:
        aside = set_aside_copied(SYSTEM_FILES, path, guid, _date())
        print(f"set aside as it was: {aside}")
        print(f"{path}: its node begins with an empty store")
    return DONE


def _date() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def _named(store: str, topology: str, directory: Path | None) -> tuple[Path, Node | None]:
    """The file that is meant, and its node, if that was named."""
    if store.endswith(".sqlite") or "/" in store:
        return Path(store), None
    from simulator.topology.places import store_path

    place = place_of(topology, directory)
    node = place.topology.node_named(store)
    return store_path(place.directory, node.name), node


def _file_of(store: str, topology: str, directory: Path | None) -> Path:
    return _named(store, topology, directory)[0]


def _told(
    path: Path, findings: list[str], counts: dict[str, int], quarantine: Path | None, *, as_json: bool
) -> int:
    if as_json:
        told: dict[str, Any] = {"store": str(path), "messages": counts, "findings": findings}
        print_json(told | {"quarantine": str(quarantine) if quarantine else None})
    else:
        for queue, count in sorted(counts.items()):
            print(f"{queue}: {_whole(count, 'message')}")
        for finding in findings:
            print(finding)
        if quarantine is not None:
            print(f"set aside as it was: {quarantine}")
        print(f"{path}: {f'{len(findings)} finding' + 's' * (len(findings) != 1) if findings else 'whole'}")
    return FINDING if findings else DONE


def _whole(count: int, what: str) -> str:
    return f"{count:,} {what} is whole" if count == 1 else f"{count:,} {what}s are whole"
