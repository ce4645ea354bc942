"""The tables of a folder, local or remote, in the format of Delta Lake, all as the same run left them.

Tasks write parts: files that nothing names yet. A run commits them, table by table, and counts as a whole when its row
is in the table `runs`; see `runs`. Readers see the tables as one run left them, even if others are written later,
because files that no longer count are kept for KEEP_S.
"""

from __future__ import annotations

import fcntl
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from mqproto.captures.pipeline.source.storage import is_pattern
from mqproto.captures.pipeline.tables import delta, runs
from mqproto.captures.pipeline.tables.parts import HIDDEN, Part, Store, TablesError, parquet_table
from mqproto.captures.pipeline.tables.runs import VERSION, Row, Runs, State

R = TypeVar("R")

__all__ = ["KEEP_S", "LOCK", "VERSION", "Run", "Tables", "TablesError"]

LOCK: Final = "_lock"
WORK: Final = "_work"
KEEP_S: Final = 3_600
"""How long, in seconds, to keep files that no longer count, for readers that still use them."""
AT_ONCE: Final = 8
"""The number of tables that are opened, or committed to, at the same time."""
version_of: Final = cache(version)
"""Returns the version of a package. It reads a file of the installed package, so its result is cached."""
LEFT_S: Final = 24 * 3_600
"""The age, in seconds, above which an unnamed file in remote tables counts as left over.

Nothing shows whether the tasks that write remote tables are still running.
"""


class Tables:
    """All tables, as one run left them; by default the last run.

    Attributes:
        store: the folder with the tables.
        folder: the path or URI of that folder.
        history: the table of all runs.
        row: the run that is shown; None before the first run.
        last: during a run, the last version of each table before it.

    Args:
        run: the number of an earlier run. Its files are kept for KEEP_S, or longer if so configured.

    Raises:
        TablesError: the folder holds something else, or tables of another version, or the run does not exist.
    """

    def __init__(self, place: Path | str, run: int | None = None) -> None:
        self.store = Store.at(place)
        self.folder = self.store.root
        self.row: Row | None = None
        self.history = Runs(self.store)
        self._state: State | None = None
        self._parts: dict[str, list[Part]] = {}
        self.last: dict[str, DeltaTable] = {}
        self._load(run)

    @property
    def names(self) -> list[str]:
        """The names of all tables."""
        return [] if self.row is None else sorted(self.row.versions)

    @property
    def state(self) -> dict[str, Any]:
        """Return the state of earlier runs, as a JSON object."""
        return self.kept.told

    @property
    def kept(self) -> State:
        """The state of earlier runs, including the names of files that runs need."""
        if self._state is None:
            self._state = State() if self.row is None else State.of(self.store, self.row)
        return self._state

    def rows(self, table: str) -> int:
        """Return the number of rows of a table."""
        return 0 if self.row is None else self.row.rows.get(table, 0)

    def parts(self, table: str) -> list[Part]:
        """Return the files of a table, in the order of its rows."""
        if table not in self._parts:
            found = self._opened(table)
            self._parts[table] = [] if found is None else delta.parts(found, table)
        return self._parts[table]

    def every_part(self) -> list[Part]:
        """Return the files of all tables."""
        return [part for some in self.at_once(self.parts, self.names) for part in some]

    def paths(self, table: str) -> list[str]:
        """Return the paths of a table's files, for any program that reads Parquet."""
        return [self.store.path(part.name) for part in self.parts(table)]

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table; their metadata has their meanings.

        Raises:
            TablesError: there is no such table.
        """
        return pa.schema(self._there(table).schema())

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a whole table in memory.

        Raises:
            TablesError: there is no such table.
        """
        read = [parquet_table(path, columns) for path in self.paths(table)]
        if read:
            return pa.concat_tables(read, promote_options="default")
        none = pa.Table.from_batches([], self.schema(table))
        return none if columns is None else none.select(list(columns))

    def dataset(self, table: str) -> Any:
        """Return a table as a pyarrow dataset, for DuckDB, pandas, polars and pyarrow itself.

        Raises:
            TablesError: there is no such table.
        """
        return delta.dataset(self._there(table))

    @contextmanager
    def run(self) -> Iterator[Run]:
        """Begin a run, in which the tables can be changed. Nothing changes unless the run is committed.

        Raises:
            TablesError: another run is at work in this folder.
            OSError: the folder cannot be written to.
        """
        with self._locked():
            self.at_once(self._restore, self.names)
            self._remove_leftovers()
            run = Run(self)
            with _work_folder(self.store, run.name):
                yield run

    def vacuum(self, keep_s: float = 0) -> int:
        """Delete files that are no longer needed; return how many were deleted.

        These are files that ceased to count at least `keep_s` seconds ago, and those that dead runs left.

        Raises:
            TablesError: another run is at work in this folder.
        """
        with self._locked():
            dropped = self.kept.dropped
            before_s = time.time() - keep_s
            gone = {name for name, dropped_s in dropped.items() if dropped_s <= before_s}
            named = self._named() - gone
            is_ours = self.store.folder is not None
            files = list(self.store.files())
            for file in files:
                is_old = is_ours or file.changed_ns / 1e9 < time.time() - LEFT_S
                if _is_file_of_ours(file.name) and file.name not in named and is_old:
                    gone.add(file.name)
            gone &= {file.name for file in files}
            self.store.remove(gone)
            return len(gone)

    def adopt(self, row: Row, state: State) -> None:
        """Switch to a run that has just been committed."""
        self.row, self._state, self._parts, self.last = row, state, {}, {}

    def at_once(self, function: Callable[[str], R], names: Sequence[str]) -> list[R]:
        """Return a function's results for all tables.

        If the tables are remote, several calls run at a time, so that less time is spent waiting for servers.
        """
        if self.store.folder is not None or len(names) < 2:
            return [function(name) for name in names]
        with ThreadPoolExecutor(min(AT_ONCE, len(names))) as threads:
            return list(threads.map(function, names))

    def _load(self, run: int | None) -> None:
        try:
            self.row = self.history.last() if run is None else self._earlier(run)
        except DeltaError as error:
            raise TablesError(f"{self.folder} cannot be read: {delta.why(error)}") from None
        self._state = None
        self._parts = {}
        self.last = {}
        if self.row is None:
            _check_free(self.store)

    def _earlier(self, run: int) -> Row:
        found = next((row for row in self.history.all() if row.run == run), None)
        if found is None:
            raise TablesError(f"{self.folder} has no run {run}: its table `runs` has those that there were")
        return found

    def _opened(self, table: str) -> DeltaTable | None:
        if self.row is None or table not in self.row.versions:
            return None
        try:
            return delta.opened(self.store, table, self.row.versions[table])
        except DeltaError as error:
            why = f"table {table} as of run {self.row.run} cannot be read: {delta.why(error)}"
            raise TablesError(f"{self.folder}: {why}") from None

    def _there(self, table: str) -> DeltaTable:
        found = self._opened(table)
        if found is None:
            raise TablesError(f"{self.folder} has no table {table}: analyse captures into it first")
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, if the tables are on this machine, and switch to the last run.

        During the block, no other process on this machine changes the tables. Remote tables have no lock.
        """
        with ExitStack() as held:
            if (folder := self.store.folder) is not None:
                folder.mkdir(parents=True, exist_ok=True)
                _take(held.enter_context((folder / LOCK).open("ab")), self.folder)
            self.history = Runs(self.store)
            self._load(None)
            yield

    def _named(self) -> set[str]:
        """Return the names of all files that count, or counted until recently."""
        kept = self.kept
        names = {part.name for part in self.every_part()} | {*kept.files, *kept.dropped}
        if self.history.table is not None:
            names |= {part.name for part in delta.parts(self.history.table, runs.TABLE)}
        return names if self.row is None else names | {self.row.state}

    def _restore(self, table: str) -> None:
        """Restore a table to the version that counts, which becomes its last version.

        This is for readers that know nothing about runs.
        """
        assert self.row is not None
        try:
            found, version = delta.opened(self.store, table), self.row.versions[table]
            if found.version() != version:
                found = delta.restore(found, version)
        except DeltaError as error:
            raise TablesError(f"{self.folder}: table {table} cannot be read: {delta.why(error)}") from None
        self.last[table] = found
        self._parts[table] = delta.parts(found, table)

    def _remove_leftovers(self) -> None:
        """Remove unnamed files that a dead run left, if the tables are on this machine.

        In remote tables, unnamed files may belong to a run that is still at work.
        """
        folder = self.store.folder
        if folder is not None:
            shutil.rmtree(folder / WORK, ignore_errors=True)
            named = self._named()
            for path in {*folder.glob("*/*.parquet"), *folder.glob(f"{runs.STATES}/*"), *folder.glob("*/.*")}:
                if path.relative_to(folder).as_posix() not in named:
                    path.unlink()


class Run:
    """A change of the tables that is in progress.

    Attributes:
        store: where tasks write parts. Files needed only during the run go into `_work`, in a folder with the run's
            name.
        name: a name that is unique among all runs, for the names of parts; the names of later runs sort after it.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.number = 1 if tables.row is None else tables.row.run + 1
        self.name = f"{self.number:06d}-{uuid.uuid4().hex[:8]}"
        self.store = tables.store

    def commit(
        self,
        *,
        added: Sequence[Part],
        schemas: Mapping[str, pa.Schema],
        dropped: Collection[str] = (),
        tidied: Collection[str] = (),
        state: Mapping[str, Any] | None = None,
        keep_s: float = KEEP_S,
    ) -> None:
        """Make the parts of this run count.

        Args:
            added: the new parts, which are in `store`.
            schemas: the schemas of all tables that are to exist, keyed by table name.
            dropped: the names of parts that no longer count.
            tidied: the names of added and dropped parts that replace one another.
            state: the new `Tables.state`; None keeps the old one.
            keep_s: how long, in seconds, to keep files that no longer count.

        Raises:
            TablesError: another run came first, or a commit cannot be written.
            OSError: the disk is full or fails; the tables are unchanged.
        """
        tables, store = self._tables, self.store
        assert len({part.name for part in added}) == len(added), "each part has a name of its own"
        now_s = time.time()
        kept = tables.kept
        try:
            versions, rows = self._commit_tables(added, set(dropped), set(tidied), schemas)
            hidden = [part.name for part in added if part.table.startswith(HIDDEN)]
            old = () if tables.row is None else (tables.row.state,)
            after = State(
                kept.told if state is None else dict(state),
                [*(name for name in kept.files if name not in dropped), *hidden],
                kept.dropped | dict.fromkeys([*dropped, *old], now_s),
            )
            forgotten = [name for name, dropped_s in after.dropped.items() if dropped_s <= now_s - keep_s]
            for name in forgotten:
                del after.dropped[name]
            row = Row(
                self.number,
                self.name,
                datetime.now(UTC),
                f"mqproto {version_of('mqproto')}",
                VERSION,
                versions,
                rows,
                f"{runs.STATES}/{self.name}.json",
            )
            store.write(row.state, after.as_json())
            forgotten += tables.history.add(row)
        except DeltaError as error:
            raise TablesError(
                f"{store.root} has been written by another run meanwhile, or cannot be written: "
                f"run this once more ({delta.why(error)})"
            ) from None
        tables.adopt(row, after)
        with suppress(OSError):  # Files that stay are left over, and go with the next run.
            store.remove(forgotten)

    def _commit_tables(
        self, added: Sequence[Part], dropped: set[str], tidied: set[str], schemas: Mapping[str, pa.Schema]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Commit to each table that changes; return the version and the number of rows of each table."""
        row = self._tables.row
        news: defaultdict[str, list[Part]] = defaultdict(list)
        for part in added:
            news[part.table].append(part)
        before = {} if row is None else dict(row.versions)
        names = sorted({*before, *schemas})
        assert set(names) >= {name for name in news if not name.startswith(HIDDEN)}, "each table has a schema"

        def commit(name: str) -> tuple[int, int]:
            olds = self._tables.parts(name)
            gone = [part for part in olds if part.name in dropped]
            count = sum(part.rows for part in (*olds, *news[name])) - sum(part.rows for part in gone)
            if name in before and not gone and not news[name]:
                return before[name], count
            table = self._tables.last.get(name) or delta.newest(self.store, name)
            if table is None:
                version = 0
                delta.create(self.store, name, schemas[name], news[name])
            else:
                if name not in before:
                    # A first run died after this point.
                    gone = delta.parts(table, name)
                version = delta.commit(table, news[name], gone, tidied)
            delta.sync(self.store, name, version)
            return version, count

        done = dict(zip(names, self._tables.at_once(commit, names), strict=True))
        return (
            {name: version for name, (version, _) in done.items()},
            {name: count for name, (_, count) in done.items()},
        )


def is_there(place: str) -> bool:
    """Whether there are tables in a folder, or at a URI."""
    store = Store.at(place)
    if store.folder is not None:
        return (store.folder / runs.TABLE / delta.LOG).is_dir()
    return not is_pattern(place) and delta.newest(store, runs.TABLE) is not None


@contextmanager
def _work_folder(store: Store, name: str) -> Iterator[None]:
    """Provide a folder for data that is too large to hand on; a local one is deleted after the block."""
    if store.folder is None:
        yield
        return
    (store.folder / WORK / name).mkdir(parents=True)
    try:
        yield
    finally:
        shutil.rmtree(store.folder / WORK, ignore_errors=True)


def _take(lock: BinaryIO, folder: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise TablesError(
            f"{folder} is being written by another run: wait for its end, or choose another folder"
        ) from None


def _check_free(store: Store) -> None:
    """Check that a folder without runs is empty, or was left by a first run that failed.

    Raises:
        TablesError: it has other files, or is a file itself.
    """
    try:
        names = store.names()
    except NotADirectoryError:
        names = [store.root]
    if any(not name.startswith(HIDDEN) for name in names) and LOCK not in names:
        raise TablesError(f"{store.root} holds something else than tables: choose another folder")


def _is_file_of_ours(name: str) -> bool:
    """Whether a file is a part of a table or a state of runs, rather than a log or a foreign file."""
    folder, _, rest = name.partition("/")
    return "/" not in rest and (rest.endswith(".parquet") or folder == runs.STATES or rest.startswith("."))
