"""The commands of `mqproto store`.

`check`, `backup`, `export`, `repair` and `adopt` are for the store of a node; `check`, `backup`, `copy` and `adopt` are
for a document history.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

from mqproto.base.errors import UsageError
from mqproto.base.words import counted
from mqproto.simulator.base.logfile import private
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import DONE, FINDING, Printout, complain
from mqproto.simulator.command.options import Commands

if TYPE_CHECKING:
    from mqproto.simulator.command.options import Later
    from mqproto.simulator.storage.care import Salvage
    from mqproto.simulator.topology.nodes import Node

app = Commands(
    help="Look after the store of a node, or a document history. Nothing is overwritten or deleted."
)
DAY_S: Final = 86_400
APPLICATION_ID_AT: Final = 68
"""The offset, in an SQLite file, of the number that identifies the application that made the file."""
SAID_EVERY: Final = 1_000
"""The number of messages between two progress reports of an export."""
StoreArgument = Annotated[str, ARGUMENT, "A node, or the .sqlite file of its store.", value("NODE|FILE")]
KeptArgument = Annotated[
    str,
    ARGUMENT,
    "A node, the .sqlite file of its store, or the URL of a document history.",
    value("NODE|FILE|URL"),
]
FromArgument = Annotated[
    str, ARGUMENT, "URL of the history: sqlite:///PATH or postgresql+psycopg://...", value("FROM")
]
ToArgument = Annotated[str, ARGUMENT, "URL of a database that has no history yet.", value("TO")]


@app.command()
def check(place: Later, store: KeptArgument) -> Printout:
    """Read a whole store, and report any damage. Status 1 if there is damage.

    Nothing is changed. The node may be running: its tables and log are read as of one moment, just after the record
    whose number is printed. The check covers neither later writes nor express messages, which are only in memory.
    """
    from contextlib import closing

    from mqproto.simulator.base.screen import working
    from mqproto.simulator.storage.care import salvaged
    from mqproto.simulator.storage.files import SYSTEM_FILES

    if (url := _history_in(store)) is not None:
        return _check_history(url)
    path, _ = _named(place, store)
    with working(f"reading {path.name}"), closing(salvaged(SYSTEM_FILES, path)) as found:
        notices = list(found.notices)
        if found.is_running:
            notices.append(
                f"its node runs: this is the store after record {found.record:,}; what came later was not looked at"
            )
    counts = _as_people_call_them(found, _names(place))
    lines = [
        f"record {found.record:,} is the newest; the log has {counted(len(found.records), 'record')}",
        *_lines(path, found.findings, counts, [*found.findings, *notices]),
    ]
    if found.findings:
        command = f"mqproto store repair {shlex.quote(str(path))}"
        first = (
            "to keep what is whole" if counts else "put back a backup; without one, to keep what the log has"
        )
        lines.append(f"{first}{', stop its node, then' * found.is_running}: {command}")
    value = {
        "store": str(path),
        "record": found.record,
        "running": found.is_running,
        "messages": found.named_counts(),
        "findings": found.findings,
        "notices": notices,
    }
    return Printout(value, lines, FINDING if found.findings else DONE)


@app.command()
def backup(
    place: Later,
    store: KeptArgument,
    target: Annotated[
        Path, ARGUMENT, "A folder, made if it does not exist, or a .sqlite file.", value("FOLDER|FILE")
    ],
) -> Printout:
    """Copy a store as of one moment; its node may be running. Nothing is overwritten.

    The copy is a complete store of two files, NAME.sqlite and NAME.sqlite-witness, verified from end to end. It has
    everything that the node had confirmed before the command started, except express messages, which are only in the
    node's memory. A damaged store is not copied. A document history, named by its URL, is copied to a file; `copy`
    moves it back to PostgreSQL.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.history.moving import back_up as back_up_history
    from mqproto.simulator.storage.care import back_up
    from mqproto.simulator.storage.files import SYSTEM_FILES

    if (url := _history_in(store)) is not None:
        with working("copying the history, and reading the copy"):
            copied = back_up_history(url, target)
        return Printout({"history": url, "backup": str(copied)}, [f"{copied}: the document history"])
    path, _ = _named(place, store)
    with working(f"copying {path.name}, and reading the copy"):
        made = back_up(SYSTEM_FILES, path, target)
    count = sum(made.counts.values())
    value = {
        "store": str(path),
        "backup": str(made.path),
        "record": made.record,
        "messages": made.counts,
    }
    belongs = f"{made.path.name}-witness beside it belongs to it"
    line = f"{made.path}: {counted(count, 'message')}, as of record {made.record:,}; {belongs}"
    return Printout(value, [line])


def _history_in(store: str) -> str | None:
    """Return the URL of the document history that `store` names; None if it does not name one."""
    if "://" in store:
        return store
    return f"sqlite:///{store}" if _made_for(store) == b"mqdh" else None


def _made_for(store: str) -> bytes:
    """Return the application's number in an SQLite file; empty if there is no such file."""
    with suppress(OSError), open(store, "rb") as file:
        file.seek(APPLICATION_ID_AT)
        return file.read(4)
    return b""


def _check_history(url: str) -> Printout:
    from mqproto.simulator.edges.history.moving import inventory

    found = inventory(url)
    lines = [f"{scope}: {count:,} {entry}" for (scope, entry), count in sorted(found.documents.items())]
    if found.moves_to:
        lines.append(f"`mqproto store copy` to {found.moves_to} has begun: type it again if it does not run")
    lines += (f"what has ended is kept for {found.keep_s / DAY_S:g} days", *found.findings)
    lines.append(f"{found.name}: {counted(len(found.findings), 'finding') if found.findings else 'whole'}")
    value = {
        "history": found.name,
        "documents": [
            {"scope": scope, "entry": entry, "count": n} for (scope, entry), n in found.documents.items()
        ],
        "keep_s": found.keep_s,
        "findings": found.findings,
    }
    return Printout(value, lines, FINDING if found.findings else DONE)


@app.command()
def copy(place: Later, source: FromArgument, target: ToArgument) -> int:
    """Move a document history to another database, or the ids that gateways kept in one to their node's store.

    Programs may use the history meanwhile. At the end, they stop using FROM, report the new place, and refuse work
    until they are restarted with TO. If the command is killed, run it again to continue.

    With the name of a stopped node as TO, its store gets the ids that gateways kept in the history; what triggers keep
    there stays.

    \b
    $ mqproto store copy sqlite:///history.sqlite postgresql://me@db/orders
    $ mqproto store copy sqlite:///history.sqlite destination
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.edges.history import moving

    if _history_in(target) is None:
        from mqproto.simulator.edges.bringing import bring

        path, node = _named(place, target)
        if node is None:
            raise UsageError(f"{target}: name the node, as its topology says whose messages they are")
        with working("bringing the ids"):
            brought = bring(source, path, node)
        print(
            f"{path}: {counted(brought.ids, 'id')}; of {counted(brought.absent, 'id')} the node never had a message"
        )
        return DONE
    with working("copying the history"):
        made = moving.copy(source, target)
    counts = f"{counted(made.documents, 'document')} and {counted(made.hooks, 'hook')}"
    print(f"{made.target}: {counts}; start gateways and triggers with --history {shlex.quote(made.target)}")
    print(f"{made.source}: what it had is kept, and used by nobody any more")
    return DONE


@app.command()
def export(
    place: Later,
    store: StoreArgument,
    queue: Annotated[list[str] | None, "A queue to export; repeatable. By default, all queues.", "-q"] = None,
    out: Annotated[
        Path | None, "Write to this file, which must not exist; by default to stdout.", "-o"
    ] = None,
) -> int:
    """Write all messages of a store as text, one per line; its node may run.

    Each line is a JSON object; all lines are as of one moment. Damaged messages are left out and reported on stderr,
    and the status is 1. `mqproto send --import FILE` sends the others. The field packet has the whole message in hex;
    the other fields are for people.

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

    path, _ = _named(place, store)
    with working(f"reading {path.name}") as say, closing(salvaged(SYSTEM_FILES, path)) as found:
        chosen = None if not queue else _chosen(found, queue, _names(place))
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
    """Yield standard output, or else a new file, which is kept only if it is written completely."""
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


def _chosen(found: Salvage, names: list[str], known_as: Callable[[str], str]) -> set[int]:
    """Return the numbers that the queues with these names have in the store.

    The names are the queues' own names, or those that people use.

    Raises:
        UsageError: the store has no queue of one of these names.
    """
    from mqproto.turn.effects import NO_QUEUES

    called: dict[str, set[int]] = {}
    for number, row in found.queues.items():
        known = known_as(row.name)
        for name in {row.name, known, known.rpartition("\\")[2], f"{found.path.stem}\\{row.name}"}:
            called.setdefault(name.casefold(), set()).add(number)
    chosen = set()
    for name in names:
        if name.casefold() not in called:
            rows = (row for row in found.queues.values() if row.kind not in NO_QUEUES)
            there = ", ".join(sorted({known_as(row.name) for row in rows}))
            raise UsageError(f"{found.path} has no queue {name}; it has {there or 'none'}")
        chosen |= called[name.casefold()]
    return chosen


@app.command()
def repair(place: Later, store: StoreArgument) -> Printout:
    """Keep the undamaged parts of a store, and set the old store aside. Status 1 if anything was damaged.

    The old files and a list of the damage go to FILE-quarantine-DATE. If a lost log record had removed messages
    from a queue, they may be delivered again.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.storage.care import repair as repair_store
    from mqproto.simulator.storage.files import SYSTEM_FILES

    path, _ = _named(place, store)
    with working(f"reading {path.name}"):
        found = repair_store(SYSTEM_FILES, path, _date())
    lines = [*_lines(path, found.findings, found.counts, found.findings)]
    if found.quarantine is None:
        lines.append("nothing is hurt, and nothing was changed")
    else:
        lines.append(f"set aside as it was, with this list: {found.quarantine}")
        lines.append("in its place is a store of the rest: look at what is missing, then start the node")
    value = {
        "store": str(path),
        "messages": found.counts,
        "findings": found.findings,
        "quarantine": str(found.quarantine) if found.quarantine else None,
    }
    return Printout(value, lines, FINDING if found.findings else DONE)


@app.command()
def adopt(
    place: Later,
    store: KeptArgument,
    moved: Annotated[bool, "The store was moved: nothing runs at its old place."] = False,
    copied: Annotated[bool, "The store was copied: the original continues."] = False,
) -> int:
    """State whether a store at a new place was moved or copied, so that its node can start again.

    A moved store keeps its waiting messages and begins a new life: from then on, the node gives none of the message
    numbers that it may have given before. Some of the messages may already have been delivered, so they are listed when
    the node starts. A copied store leaves the waiting messages to the original. It is set aside in FILE-copied-DATE,
    and its node, which needs its own GUID, begins with an empty store.

    A store that was restored from a backup or repaired may lack ids of messages that came over HTTP. Its node then
    refuses messages with ids. With neither option, this command says that those ids are lost: from then on, a message
    with one of them is new.
    """
    from mqproto.simulator.base.screen import working
    from mqproto.simulator.storage.care import accept_lost_ids, adopt_moved, set_aside_copied
    from mqproto.simulator.storage.files import SYSTEM_FILES

    path, node = _named(place, store)
    guid = node.guid if node is not None else None
    date = datetime.now(UTC)
    if not (moved or copied) and accept_lost_ids(SYSTEM_FILES, path, guid, int(date.timestamp())):
        print(f"{path}: ids of messages from before {date:%Y-%m-%d %H:%M:%S} UTC may be unknown from now on")
        return DONE
    if moved == copied:
        raise UsageError(
            "say which: --moved if nothing goes on where the store was, --copied if that store does"
        )
    if moved:
        with working(f"reading {path.name}"):
            begun = adopt_moved(SYSTEM_FILES, path, guid)
        print(f"{path}: life {begun.number} begins when its node starts")
    else:
        aside = set_aside_copied(SYSTEM_FILES, path, guid, _date())
        print(f"set aside as it was: {aside}")
        print(f"{path}: its node begins with an empty store")
        if node is None:
            print("the node needs a GUID of its own, which nobody looks at where a file is named")
    return DONE


def _date() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def _named(place: Later, store: str) -> tuple[Path, Node | None]:
    """Return the path of the store that `store` names, and its node if `store` is the name of a node."""
    if _history_in(store) is not None:
        raise UsageError(f"{store} is a document history: check, backup, copy and adopt are for it")
    if _made_for(store) == b"mqpj":
        raise UsageError(f"{store} is a program's journal, and no store: name the store of its node")
    if store.endswith(".sqlite") or "/" in store or store in (".", ".."):
        path = Path(store)
        if path.is_dir():
            stores = [str(one) for one in path.glob("*.sqlite") if _history_in(str(one)) is None]
            raise UsageError(
                f"{store} is a folder: name {stores[0] if len(stores) == 1 else 'a .sqlite file in it'}"
            )
        return path, None
    from mqproto.simulator.topology.errors import TopologyError
    from mqproto.simulator.topology.places import store_path

    here = place()
    try:
        node = here.topology.node_named(store)
    except TopologyError as error:
        if (path := store_path(here.directory, store)).is_file():
            raise UsageError(f"{error}: name its file, {path}, or its topology with --topology") from None
        raise
    return store_path(here.directory, node.name), node


def _names(place: Later) -> Callable[[str], str]:
    """Return a function that turns a queue's own name into the name that people use.

    Without a topology, the function returns the name unchanged.
    """
    from mqproto.simulator.topology import TopologyError
    from mqproto.simulator.topology.directory import known_as

    try:
        return partial(known_as, place().topology)
    except TopologyError:
        return str


def _as_people_call_them(found: Salvage, known_as: Callable[[str], str]) -> dict[str, int]:
    """Return how many messages each queue has, keyed by the queue's name; empty queues are included.

    If people use another name for a queue, according to the topology, that name is added in parentheses.
    """
    counts: dict[str, int] = {}
    for number in {*found.queues, *found.counts}:
        called, row = found.name_of(number), found.queues.get(number)
        usual = known_as(row.name) if row else ""
        if row and usual != row.name:
            called = f"{called} ({usual})"
        counts[called] = counts.get(called, 0) + found.counts[number]
    return counts


def _lines(path: Path, findings: list[str], counts: dict[str, int], lines: list[str]) -> Iterator[str]:
    """Yield the number of undamaged messages in each queue, the given lines, and the state of the store."""
    for queue, count in sorted(counts.items()):
        if count:
            yield f"{queue}: {counted(count, 'message')} {'is' if count == 1 else 'are'} whole"
    if not any(counts.values()):
        yield "no message waits" if counts or not findings else "no message can be read"
    yield from lines
    yield f"{path}: {counted(len(findings), 'finding') if findings else 'whole'}"
