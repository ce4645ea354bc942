"""The kinds of damage: changes to the files of a store after its node has ended and before it starts again.

Files are damaged in place, as a disk would do it: path and inode stay the same. Changes by an operator (a copy is
restored, a folder is moved) are made as an operator would make them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from mqproto.simulator.storage.files import PAGE_BYTES

COPIED: Final = "copied to another folder, the original goes on"
COPIED_AND_GONE: Final = "copied to another folder, the original is gone"
ELSEWHERE: Final = "elsewhere"
"""The name of the folder that a store is copied to."""
WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
HEADER_BYTES: Final = 68
"""The approximate length, in bytes, of the header of a log segment."""
PAGES: Final = {2: "interior index", 5: "interior table", 10: "leaf of an index", 13: "leaf of a table"}
KINDS: Final = {
    "tables": r"\.sqlite",
    "SQLite's log": r"\.sqlite-wal",
    "SQLite's shared memory": r"\.sqlite-shm",
    "segment": r"\.sqlite-log-\d+",
    "witness": r"\.sqlite-witness",
    "life file": r"\.life",
    "lock": r"\.sqlite-lock",
    "room set aside": r"\.sqlite-(reserve|wal-room)",
}
"""The kinds of files: for each, a pattern for the part of the file's name that follows the node's name."""


class Scene(NamedTuple):
    """The stores to damage.

    earlier: the folder with all stores at an earlier moment.
    mislaid: a folder for removed or exchanged files, where an operator may look for them.
    """

    folder: Path
    earlier: Path
    mislaid: Path
    names: tuple[str, ...]
    dice: Random


class Done(NamedTuple):
    """The damage done.

    node: the owner of the store.
    detail: a description in one line.
    """

    node: str
    detail: str


Hurter = Callable[[Scene], Done | None]


class Hurt(NamedTuple):
    """One kind of damage.

    act: does the damage; it returns None if there is nothing to damage.
    kill_share: the share of trials in which the nodes are killed first, instead of stopped in an
        orderly way: a kill leaves other files.
    copies: whether the damage needs stores of an earlier moment.
    """

    act: Hurter
    kill_share: float = 0.6
    copies: bool = False


def files_of(folder: Path, node: str, kind: str) -> list[Path]:
    """Return a node's files of one kind."""
    pattern = re.compile(re.escape(node) + KINDS[kind])
    return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))


def store_files(folder: Path, node: str) -> list[Path]:
    """Return the files that an operator copies: NAME.sqlite*, without the lock."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file()
        and path.name.startswith(f"{node}.sqlite")
        and "-lock" not in path.name
        and not path.name.endswith("-shm")
    )


def _shuffled(scene: Scene) -> list[str]:
    return scene.dice.sample(scene.names, len(scene.names))


def _some_file(scene: Scene, kind: str, *, filled: bool = True) -> tuple[str, Path] | None:
    """Return a node and one of its files of this kind; None if there is no such file."""
    for node in _shuffled(scene):
        found = [path for path in files_of(scene.folder, node, kind) if not filled or path.stat().st_size > 0]
        if found:
            return node, scene.dice.choice(found)
    return None


def _rewrite(path: Path, data: bytes | bytearray) -> None:
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def _flip(scene: Scene, node: str, path: Path, at: int, what: str = "") -> Done:
    bit = scene.dice.randrange(8)
    with path.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    return Done(node, f"bit {bit} of byte {at:,} of {path.name} is flipped{what}")


def bit_in(kind: str, low: float = 0.0, high: float = 1.0) -> Hurter:
    """Flip a bit of a file, at a point between two given fractions of the file's used length."""

    def act(scene: Scene) -> Done | None:
        found = _some_file(scene, kind)
        if found is None:
            return None
        node, path = found
        used = max(1, len(path.read_bytes().rstrip(b"\0")))
        at = int(used * (low + (high - low) * scene.dice.random()))
        return _flip(scene, node, path, min(at, path.stat().st_size - 1))

    return act


def bit_in_page(kind: str) -> Hurter:
    """Flip a bit in one of the tables' pages of this kind."""

    def act(scene: Scene) -> Done | None:
        for node in _shuffled(scene):
            for path in files_of(scene.folder, node, "tables"):
                data = path.read_bytes()
                pages = [
                    at
                    for at in range(0, len(data), PAGE_BYTES)
                    if _page_kind(data, at) == kind and data[at : at + PAGE_BYTES].strip(b"\0")
                ]
                if pages:
                    at = scene.dice.choice(pages) + scene.dice.randrange(PAGE_BYTES)
                    return _flip(scene, node, path, at, f", in a page that is {kind}")
        return None

    return act


def _page_kind(data: bytes, at: int) -> str:
    if at == 0:
        return "the first page"
    return PAGES.get(data[at], "overflow or free")


def bit_in_segment(part: str) -> Hurter:
    """Flip a bit in the header, in a record, in the last record, or in the zeros of a segment."""

    def act(scene: Scene) -> Done | None:
        found = _some_file(scene, "segment")
        if found is None:
            return None
        node, path = found
        data = path.read_bytes()
        used = max(HEADER_BYTES + 1, len(data.rstrip(b"\0")))
        first, last = {
            "header": (0, HEADER_BYTES),
            "record": (HEADER_BYTES, used),
            "last bytes": (max(HEADER_BYTES, used - 300), used),
            "zeros": (used, len(data)),
        }[part]
        last = min(last, len(data))
        if last <= first:
            return None
        return _flip(scene, node, path, scene.dice.randrange(first, last))

    return act


def bit_in_sqlites_log(part: str) -> Hurter:
    """Flip a bit in the header of SQLite's log, in a frame's header, or in a frame's page."""

    def act(scene: Scene) -> Done | None:
        found = _some_file(scene, "SQLite's log")
        if found is None:
            return None
        node, path = found
        size = path.stat().st_size
        frame_bytes = FRAME_HEADER_BYTES + PAGE_BYTES
        frames = (size - WAL_HEADER_BYTES) // frame_bytes
        if frames < 1:
            return None
        start = WAL_HEADER_BYTES + scene.dice.randrange(frames) * frame_bytes
        at = {
            "header": scene.dice.randrange(WAL_HEADER_BYTES),
            "frame's head": start + scene.dice.randrange(FRAME_HEADER_BYTES),
            "page": start + FRAME_HEADER_BYTES + scene.dice.randrange(PAGE_BYTES),
        }[part]
        return _flip(scene, node, path, at)

    return act


def changed(kind: str, how: str) -> Hurter:
    """Overwrite the end of a file with zeros or cut it off, put a block of zeros or garbage into the file, or make it
    longer.
    """

    def act(scene: Scene) -> Done | None:
        found = _some_file(scene, kind, filled=kind != "lock")
        if found is None:
            return None
        node, path = found
        dice, data = scene.dice, bytearray(path.read_bytes())
        used = len(data.rstrip(b"\0"))
        at = dice.randrange(used) if used else 0
        count = dice.choice((1, 20, 512, 4_096, 64 << 10))
        if how == "tail zeroed":
            data[at:] = bytes(len(data) - at)
        elif how == "tail cut":
            del data[at:]
        elif how == "block zeroed":
            at = at // 512 * 512
            data[at : at + count] = bytes(len(data[at : at + count]))
        elif how == "block of garbage":
            data[at : at + count] = dice.randbytes(len(data[at : at + count]))
        else:
            data += dice.choice((bytes(count), dice.randbytes(count)))
        if data == path.read_bytes():
            return None
        _rewrite(path, data)
        return Done(node, f"{how} at byte {at:,} of {path.name}, {count:,}")

    return act


def missing(kind: str) -> Hurter:
    """Remove a file."""

    def act(scene: Scene) -> Done | None:
        found = _some_file(scene, kind, filled=False)
        if found is None:
            return None
        node, path = found
        scene.mislaid.mkdir(exist_ok=True)
        path.rename(scene.mislaid / path.name)
        return Done(node, f"{path.name} is missing")

    return act


def stale(kind: str) -> Hurter:
    """Replace a file with its state at an earlier moment, as if only that file had been restored."""

    def act(scene: Scene) -> Done | None:
        for node in _shuffled(scene):
            old = {path.name: path for path in files_of(scene.earlier, node, kind)}
            now = {path.name: path for path in files_of(scene.folder, node, kind)}
            chosen = [
                name
                for name, path in sorted(old.items())
                if name not in now or path.read_bytes() != now[name].read_bytes()
            ]
            if not chosen:
                continue
            name = scene.dice.choice(chosen)
            scene.mislaid.mkdir(exist_ok=True)
            if name in now:
                shutil.copy(now[name], scene.mislaid / name)
                _rewrite(now[name], old[name].read_bytes())
            else:
                shutil.copy(old[name], scene.folder / name)
            return Done(node, f"{name} is of an earlier moment{'' if name in now else ', and was gone'}")
        return None

    return act


def swapped_within(scene: Scene) -> Done | None:
    """Exchange two files of one store."""
    for node in _shuffled(scene):
        paths = store_files(scene.folder, node)
        if len(paths) > 1:
            return _swap(scene, node, *scene.dice.sample(paths, 2))
    return None


def swapped_between(kind: str) -> Hurter:
    """Exchange a file of one node's store with a file of the same kind of another node's store."""

    def act(scene: Scene) -> Done | None:
        one, other, _ = _shuffled(scene)
        mine, others = (files_of(scene.folder, node, kind) for node in (one, other))
        if not mine or not others:
            return None
        return _swap(scene, one, scene.dice.choice(mine), scene.dice.choice(others))

    return act


def _swap(scene: Scene, node: str, one: Path, other: Path) -> Done:
    scene.mislaid.mkdir(exist_ok=True)
    first, second = one.read_bytes(), other.read_bytes()
    for path in (one, other):
        shutil.copy(path, scene.mislaid / path.name)
    _rewrite(one, second)
    _rewrite(other, first)
    return Done(node, f"{one.name} and {other.name} are swapped")


def restored(*, in_place: bool) -> Hurter:
    """Restore a whole store to an earlier moment: with `cp` over the existing files, or after `rm`."""

    def act(scene: Scene) -> Done | None:
        for node in _shuffled(scene):
            old = store_files(scene.earlier, node)
            if [path.read_bytes() for path in old] == [
                path.read_bytes() for path in store_files(scene.folder, node)
            ]:
                continue
            now = {path.name: path for path in store_files(scene.folder, node)}
            kept = {path.name for path in old} if in_place else set()
            for name, path in now.items():
                if name not in kept:
                    path.unlink()
            for path in files_of(scene.folder, node, "SQLite's shared memory"):
                path.unlink()
            for path in old:
                if path.name in kept and path.name in now:
                    _rewrite(now[path.name], path.read_bytes())
                else:
                    shutil.copy(path, scene.folder / path.name)
            return Done(node, f"the store of {node} is put back{' in place' if in_place else ''}")
        return None

    return act


def moved_away(scene: Scene) -> Done | None:
    """Remove a whole store; only its life file stays, if there is one."""
    node = next((node for node in _shuffled(scene) if store_files(scene.folder, node)), None)
    if node is None:
        return None
    away = scene.folder / f"{node}-gone"
    away.mkdir()
    for path in [*store_files(scene.folder, node), *files_of(scene.folder, node, "SQLite's shared memory")]:
        path.rename(away / path.name)
    return Done(node, f"the store of {node} is moved away")


def copied(scene: Scene) -> Done | None:
    """Copy a store to another folder, with its life file or without."""
    node = next((node for node in _shuffled(scene) if store_files(scene.folder, node)), None)
    if node is None:
        return None
    (scene.folder / ELSEWHERE).mkdir(mode=0o700)
    lives = files_of(scene.folder, node, "life file") if scene.dice.random() < 0.5 else []
    for path in [*store_files(scene.folder, node), *lives]:
        shutil.copy(path, scene.folder / ELSEWHERE / path.name)
    return Done(node, f"the store of {node} is copied{' with its life file' if lives else ''}")


def nothing(scene: Scene) -> Done | None:
    """Do nothing, for trials that only kill."""
    return Done(scene.dice.choice(scene.names), "nothing but the kill")


LEFT_BY_KILLS: Final = frozenset({"SQLite's log", "SQLite's shared memory", "segment"})
"""The kinds of files that an orderly end removes."""
IN_FULL: Final = 0.15
"""The share of trials in which nodes are killed before their tables are damaged.

After an orderly end, all data is in the tables; after a kill, much of it is still in SQLite's log.
"""


def _share(kind: str) -> float:
    return 1.0 if kind in LEFT_BY_KILLS else IN_FULL if kind == "tables" else 0.6


HOLDING: Final = ("tables", "SQLite's log", "segment", "witness", "life file")
FILE_HURTS: Final[dict[str, Hurt]] = {
    **{
        f"bit in the tables: {kind}": Hurt(bit_in_page(kind), IN_FULL)
        for kind in ("the first page", *PAGES.values(), "overflow or free")
    },
    **{
        f"bit in SQLite's log: {part}": Hurt(bit_in_sqlites_log(part), 1.0)
        for part in ("header", "frame's head", "page")
    },
    **{
        f"bit in a segment: {part}": Hurt(bit_in_segment(part), 1.0)
        for part in ("header", "record", "last bytes", "zeros")
    },
    "bit in the witness": Hurt(bit_in("witness")),
    "bit in the life file": Hurt(bit_in("life file")),
    "bit in SQLite's shared memory": Hurt(bit_in("SQLite's shared memory"), 1.0),
    **{
        f"{how}: {kind}": Hurt(changed(kind, how), _share(kind))
        for how in ("tail zeroed", "tail cut", "block zeroed", "block of garbage", "grown")
        for kind in HOLDING
    },
    "grown: lock": Hurt(changed("lock", "grown")),
    "bit in the room set aside": Hurt(bit_in("room set aside")),
    **{f"{how}: room set aside": Hurt(changed("room set aside", how)) for how in ("tail cut", "grown")},
    **{f"missing: {kind}": Hurt(missing(kind), _share(kind)) for kind in KINDS},
    **{f"of an earlier moment: {kind}": Hurt(stale(kind), _share(kind), copies=True) for kind in HOLDING},
    "swapped within a store": Hurt(swapped_within),
    **{f"swapped between stores: {kind}": Hurt(swapped_between(kind), _share(kind)) for kind in HOLDING},
    "restored: copied over": Hurt(restored(in_place=True), copies=True),
    "restored: removed, then copied": Hurt(restored(in_place=False), copies=True),
    "moved away": Hurt(moved_away),
    COPIED: Hurt(copied),
    COPIED_AND_GONE: Hurt(copied),
}
