"""Adopts a store that is in a different place than before. An operator says whether it was copied or moved there, so
that its node can start again.

The node refuses the store until then, because two nodes with one GUID would use the same identifiers for different
messages.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from mqproto.simulator.base.storeerrors import DamageError, StoreError, explained
from mqproto.simulator.storage.care.reading import finding_of_log, opened
from mqproto.simulator.storage.files import Files
from mqproto.simulator.storage.store import Store
from mqproto.simulator.storage.witnesses.life import life_path
from mqproto.turn.effects import POSTED_LACKS_S, POSTED_UNKNOWN, NewLife, Writes
from mqproto.wire.guid import NULL_GUID, Guid, guid_text


def adopt_moved(files: Files, path: Path, node: Guid | None) -> NewLife:
    """Adopt a store that was moved, so that nothing uses its old place anymore. It begins a new life at its new place
    when its node starts.

    Args:
        node: the node that the store will belong to; None for the node that the store names.

    Raises:
        StoreError: there is no store, it belongs to another node, it is damaged, or its node is running.
    """
    with Store(path, node or owner_of(files, path), files=files, is_adopted=True) as store:
        assert store.life is not None, "one that is adopted begins"
        return store.life


def accept_lost_ids(files: Files, path: Path, node: Guid | None, date_s: int) -> bool:
    """Record that an operator accepts that a store lacks ids of posted messages. Return whether it may lack any.

    Raises:
        StoreError: there is no store, it belongs to another node, it is damaged, or its node is running.
    """
    with Store(path, node or owner_of(files, path), files=files) as store:
        if not store.load().counters.get(POSTED_UNKNOWN):
            return False
        store.commit(Writes(counters={POSTED_UNKNOWN: 0, POSTED_LACKS_S: date_s}))
        return True


def set_aside_copied(files: Files, path: Path, node: Guid | None, date: str) -> Path:
    """Set aside a store that was copied, because the original continues. Its node begins with an empty store.

    Args:
        node: the node's GUID from now on; None if that is not known here.
        date: the date for the name of the folder.

    Returns:
        The folder with everything that was set aside.

    Raises:
        StoreError: there is no store, its node is running, the node still has the GUID of the original, or the folder
            already exists.
    """
    path = path.resolve()
    owner = owner_of(files, path)
    if node == owner:
        raise StoreError(
            f"{path}: the store that goes on belongs to {guid_text(owner)}, and so does this node: give this one a GUID"
            f' of its own, guid = "..." in [node.{path.stem}] of its topology'
        )
    aside = path.with_name(f"{path.name}-copied-{date}")
    with explained(path), closing(files.lock(path)):
        if aside.exists():
            raise StoreError(f"{aside}: it is there already: move it away")
        aside.mkdir(mode=0o700)
        for each in sorted(path.parent.iterdir()):
            is_ours = each.name.startswith(path.name) and "-lock" not in each.name
            if each.is_file() and (is_ours or each.name.startswith(life_path(path).name)):
                each.rename(aside / each.name)
        files.flush_folder(path.parent)
    return aside


def owner_of(files: Files, path: Path) -> Guid:
    """Return the GUID of the node that a store belongs to.

    Raises:
        StoreError: there is no store, or it does not name its node.
    """
    if not path.exists():
        raise StoreError(f"{path}: there is no such store: name a node of the topology, or its file")
    with explained(path):
        with closing(opened(path, with_log=not finding_of_log(files, path))) as db:
            rows = db.execute("SELECT guid FROM node").fetchall()
        if len(rows) != 1 or len(rows[0][0]) != len(NULL_GUID):
            raise DamageError("nothing says whose it is")
        return Guid(rows[0][0])
