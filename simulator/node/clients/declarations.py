"""Operators' requests to list, create, change and delete the queues that a node hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.formatname import parse_path_name
from mqproto.manager.queuemanager import QueueManager
from mqproto.queues.protection import OPEN, Protection
from mqproto.simulator.node.control import Declared, QueueWish
from mqproto.simulator.topology import DeclaredQueue
from mqproto.simulator.topology.directory import NodeDirectory, as_the_core_has_it
from mqproto.simulator.topology.nodes import FIRST_IDENTIFIER
from mqproto.simulator.topology.resolve import is_bare, means_here
from mqproto.wire import Guid, guid_text


class QueueAdministration:
    """Makes, changes and deletes queues, and keeps the directory up to date.

    Every method except `declared` may raise FormatNameError, or UsageError if there is no such queue or the request
    cannot be carried out.
    """

    def __init__(self, core: QueueManager, directory: NodeDirectory) -> None:
        self._core = core
        self._directory = directory

    def declared(self) -> Declared:
        """Return the queues of this node, as they are now."""
        return Declared(list(self._directory.node.queues.values()))

    def make(self, wish: QueueWish) -> DeclaredQueue:
        """Make a queue; return its declaration."""
        name = self._name_of_its_own(wish.queue)
        public = Guid(wish.public) if wish.public is not None else None
        others = (queue for node in self._directory.topology.nodes.values() for queue in node.queues.values())
        for other in others:
            if public is not None and public in (other.public, other.connector):
                raise UsageError(f"{other.name} has the GUID {guid_text(public)} already: choose another")
        wanted = DeclaredQueue(
            name=name,
            identifier=FIRST_IDENTIFIER,  # The core chooses another.
            transactional=bool(wish.transactional),
            public=public,
            quota_kb=wish.quota_kb or None,
            journal=bool(wish.journal),
            journal_quota_kb=wish.journal_quota_kb or None,
            strangers=bool(wish.strangers),
            protection=_protection(OPEN, wish),
        )
        self._core.make(as_the_core_has_it(wanted))
        return self._as_it_is(name)

    def make_missing(self, wish: QueueWish) -> None:
        """Make a queue that was requested at the node's start. Do nothing if a queue of this name and kind exists."""
        name, transactional = self._name_of_its_own(wish.queue), bool(wish.transactional)
        there = {queue.name.casefold(): queue for queue in self._directory.node.queues.values()}
        known = there.get(name.casefold())
        if known is None:
            self.make(wish)
        elif known.transactional != transactional:
            kind = "transactional" if known.transactional else "not transactional"
            raise UsageError(
                f"--queue {name}: the queue is there and {kind}, which cannot be changed: delete it, or ask for another"
            )

    def change(self, wish: QueueWish) -> DeclaredQueue:
        """Change a queue's properties; return its declaration."""
        name = self._directory.local_queue(wish.queue)
        known = self._directory.node.queues.get(name)
        if known is None:
            raise UsageError(
                f"{name} belongs to the system: set what its own queue is, or the node's settings"
            )
        if wish.transactional not in (None, known.transactional) or wish.public not in (None, known.public):
            raise UsageError(f"{name} stays what it was made as: delete it and make another")
        said = {key: getattr(wish, key) for key in ("journal", "strangers", "quota_kb", "journal_quota_kb")}
        values: dict[str, Any] = {
            key: value if isinstance(value, bool) else value or None  # 0 means no quota.
            for key, value in said.items()
            if value is not None
        }
        if values.get("journal") is False:
            values["journal_quota_kb"] = wish.journal_quota_kb or None
        values["protection"] = _protection(known.protection, wish)
        self._core.change(as_the_core_has_it(replace(known, **values)))
        return self._as_it_is(name)

    def delete(self, text: str) -> int:
        """Delete a queue of this node together with its messages and its journal.

        Return the number of messages that will be deleted, including those in the journal.
        """
        count = self._core.delete(self._directory.local_queue(text))
        self._directory.has_queues(self._core.declared)
        return count

    def _as_it_is(self, name: str) -> DeclaredQueue:
        self._directory.has_queues(self._core.declared)
        return self._directory.node.queue(name)

    def _name_of_its_own(self, text: str) -> str:
        r"""Return a local queue's own name, such as `orders` for `.\private$\orders`. The queue need not exist."""
        node = self._directory.node.name
        try:
            name = parse_path_name(f".\\{text}" if is_bare(text) else text)
        except FormatNameError as error:
            raise UsageError(str(error).removeprefix(".\\")) from None
        if (
            not means_here(self._directory.topology, name.computer)
            and name.computer.casefold() != node.casefold()
        ):
            raise UsageError(f"{text} is a queue of {name.computer}: ask that one")
        if name.read_only or name.subqueue:
            raise UsageError(
                f"{text}: journals, subqueues and the system's queues cannot be made; name a queue"
            )
        return name.queue


def _protection(known: Protection, wish: QueueWish) -> Protection:
    """Return the protection that a queue will demand of messages.

    Settings that the request does not mention stay as they are.

    Raises:
        UsageError: one of the words is unknown.
    """
    said = {name: getattr(wish, name) for name in ("authenticated", "privacy", "weak_ciphers", "senders")}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in said.items()
        if value is not None
    }
    return replace(known, **values)
