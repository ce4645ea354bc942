"""The queues of a queue manager, as its topology declares them and as operators have changed them.

When an operator makes, changes or deletes a queue, the change becomes a special kind of row among the store's queues,
like a blocked network. The row contains the queue after the change, and the queue's declaration at that time. The row
is valid as long as the declaration stays the same. If the declaration has changed since, the new declaration wins, and
a note says so.

    declared then       made to be          declared now        there is
    nothing             orders              nothing             orders, as it was made
    orders              nothing             orders              no queue
    orders              orders, 512 KiB     orders, 64 KiB      orders, 64 KiB, and a note
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import astuple, replace
from typing import Any, Final, NamedTuple

from mqproto.base.errors import UsageError
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.queues.protection import Protection
from mqproto.turn.desk import Desk
from mqproto.turn.effects import QUEUE_IDENTIFIER, Note, QueueKind, QueueRow, StoredState
from mqproto.wire.guid import guid_from_text, guid_text

FIRST_IDENTIFIER: Final = 65_536
"""The first identifier for queues that operators make.

Those of a topology begin at 16, and the topology may get more queues later.
"""


WITHOUT_PROTECTION: Final = 8
"""The number of values per queue in rows of the earliest versions."""
WITHOUT_CONNECTOR: Final = 9
"""The number of values of a queue that is not a connector queue."""


class Change(NamedTuple):
    """An operator's changes to a queue.

    now: the queue after the change; None if it was deleted.
    declared: the queue's declaration at that time; None if it had none.
    """

    name: str
    now: QueueDeclaration | None
    declared: QueueDeclaration | None


class Declarations:
    """All declarations, by name in lower case.

    Args:
        declared: the queues that the topology declares.
        state: the contents of the store.
        next_number: returns a number for a new row.

    Raises:
        UsageError: a queue that an operator made has the identifier or the GUID of a declared queue.
    """

    def __init__(
        self,
        desk: Desk,
        declared: Iterable[QueueDeclaration],
        state: StoredState,
        next_number: Callable[[], int],
    ) -> None:
        self._writes = desk.writes
        self._next_number = next_number
        self._declared = {declaration.name.lower(): declaration for declaration in declared}
        self._next_identifier = state.counters.get(QUEUE_IDENTIFIER, FIRST_IDENTIFIER)
        self._numbers: dict[str, int] = {}
        """The numbers of the valid rows, by name."""
        self._free: list[int] = []
        """The numbers of rows that are no longer valid and can therefore be used again."""
        self.current = dict(self._declared)
        self.deleted: dict[str, str] = {}
        """The names of queues that operators have deleted and not made again, by name in lower case."""
        for stored in state.queues:
            if stored.kind is not QueueKind.DECLARED:
                continue
            if not stored.on_hold:
                self._free.append(stored.queue)
                continue
            change = _read(stored.name)
            self._numbers[change.name.lower()] = stored.queue
            if not self._holds(change):
                self._give_way(change, desk.notes)
        self._check_twins()

    def _holds(self, change: Change) -> bool:
        """Apply a change if the queue's declaration is still the same. Return whether it was applied."""
        key = change.name.lower()
        declared = self._declared.get(key)
        if not _alike(change.declared, declared):
            return False
        if change.now is None:
            self.current.pop(key, None)
            self.deleted[key] = change.name
        else:
            self.current[key] = change.now if declared is None else _numbered(change.now, declared.identifier)
        return True

    def _give_way(self, change: Change, notes: list[Note]) -> None:
        """Give up a change, because the queue's declaration has changed and takes precedence."""
        declared = self._declared.get(change.name.lower())
        self._void(change.name.lower())
        if not _alike(change.now, declared):
            notes.append(
                Note(
                    "declared-otherwise",
                    {
                        "queue": change.name,
                        "was": _words(change.now),
                        "is": _words(declared),
                        "reason": "its topology has changed since an operator did that, and wins",
                    },
                )
            )

    def _check_twins(self) -> None:
        """Check that no two queues share an identifier or a GUID, because messages for one would reach the other."""
        owners: dict[object, QueueDeclaration] = {}
        for declaration in self.current.values():
            for what, name in (
                ("id", declaration.identifier),
                *(("GUID", claim) for claim in declaration.guids),
            ):
                other = owners.setdefault(name, declaration)
                if other is not declaration:
                    raise UsageError(
                        f"{other.name} is declared with the {what} of {declaration.name}, which an operator has made: "
                        f"give {other.name} another in its topology"
                    )

    # What operators do

    def make(self, declaration: QueueDeclaration) -> QueueDeclaration:
        """Add a queue. Its identifier is the declared one, or else one that no queue has ever had."""
        key = declaration.name.lower()
        declared = self._declared.get(key)
        identifier = self._fresh() if declared is None else declared.identifier
        made = _numbered(declaration, identifier)
        self.deleted.pop(key, None)
        self._keep(Change(made.name, made, declared))
        return made

    def change(self, declaration: QueueDeclaration) -> None:
        """Give an existing queue new properties from now on."""
        self._keep(Change(declaration.name, declaration, self._declared.get(declaration.name.lower())))

    def delete(self, declaration: QueueDeclaration) -> None:
        """Delete an existing queue."""
        key = declaration.name.lower()
        self.deleted[key] = declaration.name
        self._keep(Change(declaration.name, None, self._declared.get(key)))

    def forget(self, key: str) -> None:
        """Forget a deleted queue that has nothing left.

        A queue that is declared is not forgotten, because it would be created again.
        """
        if key in self.deleted and key not in self._declared:
            del self.deleted[key]
            self._void(key)

    def _keep(self, change: Change) -> None:
        key = change.name.lower()
        self.current.pop(key, None)
        if change.now is not None:
            self.current[key] = change.now
        if key not in self._numbers:
            self._numbers[key] = self._free.pop() if self._free else self._next_number()
        self._write(self._numbers[key], _written(change), holds=True)

    def _void(self, key: str) -> None:
        number = self._numbers.pop(key)
        self._free.append(number)
        self._write(number, str(number), holds=False)

    def _write(self, number: int, name: str, *, holds: bool) -> None:
        self._writes.urgent().queues.append(QueueRow(number, QueueKind.DECLARED, name, on_hold=holds))

    def _fresh(self) -> int:
        taken = {declaration.identifier for declaration in self._declared.values()}
        while self._next_identifier in taken:
            self._next_identifier += 1
        self._next_identifier += 1
        self._writes.urgent().counters[QUEUE_IDENTIFIER] = self._next_identifier
        return self._next_identifier - 1


def _numbered(declaration: QueueDeclaration, identifier: int) -> QueueDeclaration:
    return replace(declaration, identifier=identifier)


def _alike(one: QueueDeclaration | None, other: QueueDeclaration | None) -> bool:
    """Return whether two declarations of a queue are the same, apart from the identifier and the name.

    The identifier may differ because other queues may have been declared before this one. The names are not compared:
    callers look the declarations up by name, so only the case can differ.
    """
    if one is None or other is None:
        return one is other
    return _numbered(one, 0) == replace(other, identifier=0, name=one.name)


def _words(declaration: QueueDeclaration | None) -> str:
    """Describe a queue for a note, without the properties that it lacks."""
    if declaration is None:
        return "no queue"
    words = ["transactional" if declaration.transactional else "not transactional"]
    if declaration.public is not None:
        words.append(f"public {guid_text(declaration.public)}")
    if declaration.connector is not None:
        words.append(f"connector queue of {guid_text(declaration.connector)}")
    if declaration.quota_bytes is not None:
        words.append(f"{declaration.quota_bytes:,} bytes")
    if declaration.journal:
        words.append("with a journal")
    if declaration.journal_quota_bytes is not None:
        words.append(f"of {declaration.journal_quota_bytes:,} bytes")
    if declaration.strangers:
        words.append("open to strangers")
    words += declaration.protection.words()
    return ", ".join(words)


# The format of a row


def _written(change: Change) -> str:
    return json.dumps([change.name, _values(change.now), _values(change.declared)], ensure_ascii=False)


def _values(declaration: QueueDeclaration | None) -> list[Any] | None:
    if declaration is None:
        return None
    values = astuple(declaration)
    if declaration.connector is None:
        values = values[:WITHOUT_CONNECTOR]  # As earlier versions read it.
    return [guid_text(value) if isinstance(value, bytes) else value for value in values]


def _read(text: str) -> Change:
    name, now, declared = json.loads(text)
    return Change(name, _made_of(now), _made_of(declared))


def _made_of(values: list[Any] | None) -> QueueDeclaration | None:
    if values is None:
        return None
    name, identifier, transactional, public, *rest = values[:WITHOUT_PROTECTION]
    guid = None if public is None else guid_from_text(public)
    declaration = QueueDeclaration(name, identifier, transactional, guid, *rest)
    for asked in values[WITHOUT_PROTECTION:WITHOUT_CONNECTOR]:
        authenticated, privacy, weak_ciphers, senders = asked
        protection = Protection(authenticated, privacy, tuple(weak_ciphers), tuple(senders))
        declaration = replace(declaration, protection=protection)
    for connector in values[WITHOUT_CONNECTOR:]:
        declaration = replace(declaration, connector=guid_from_text(connector))
    return declaration
