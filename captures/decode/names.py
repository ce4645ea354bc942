"""Readable names of queue managers and queues, from a topology or shortened from the values in packets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from mqproto.base.errors import FormatNameError
from mqproto.captures.net.tcp import Endpoint
from mqproto.formatname.wire import admin_from_wire, destination_from_wire, response_from_wire
from mqproto.wire import NULL_GUID, Guid, QueueName, UserHeader, guid_text

REMEMBERED_LIMIT: Final = 4_096
SHORT_GUID: Final = 8  # digits; enough to tell the queue managers of one network apart

QueueKey: TypeAlias = tuple[Guid, int] | Guid
"""Identifies a private queue by its queue manager and number, or a public queue by its GUID."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names for queue managers and queues, which packets identify by numbers; each mapping may be empty.

    managers: queue managers' names, keyed by GUID.
    addresses: queue managers' names, keyed by the endpoint at which the queue manager listens.
    hosts: queue managers' names, keyed by address alone, for addresses that only one queue manager has.
    queues: names of queues, without the queue manager.
    """

    managers: Mapping[Guid, str] = field(default_factory=dict)
    addresses: Mapping[tuple[str, int], str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[QueueKey, str] = field(default_factory=dict)
    _destinations: dict[tuple[QueueName, Guid], str] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def endpoint(self, endpoint: Endpoint) -> str:
        """Return the name of the queue manager at an endpoint, or its address and port."""
        return (
            self.addresses.get((endpoint.host, endpoint.port))
            or self.hosts.get(endpoint.host)
            or str(endpoint)
        )

    def manager(self, guid: Guid) -> str:
        """Return a queue manager's name, or the beginning of its GUID."""
        return self.managers.get(guid) or guid_text(guid)[:SHORT_GUID]

    def private_queue(self, owner: str, number: int) -> str | None:
        """Return a private queue's name; None if it has none.

        The queue is looked up by the name of its queue manager, because the GUIDs in captures differ from those in
        topologies.
        """
        named = (guid for guid, name in self.managers.items() if name == owner)
        return next((self.queues[guid, number] for guid in named if (guid, number) in self.queues), None)

    def destination(self, user: UserHeader) -> str:
        """Return the shortest name of a message's destination queue."""
        return self.queue(user.destination_queue, user.queue_manager_address)

    def queue(self, queue: QueueName, manager: Guid) -> str:
        """Return the shortest name of a queue, given its DestinationQueue and QueueManagerAddress."""
        key = (queue, manager)
        name = self._destinations.get(key)
        if name is None:
            if len(self._destinations) >= REMEMBERED_LIMIT:
                self._destinations.clear()
            name = self._destinations[key] = self._destination(*key)
        return name

    def _destination(self, queue: QueueName, manager: Guid) -> str:
        match queue:
            case int():
                return self.queues.get((manager, queue)) or f"{self.manager(manager)}\\{queue}"
            case bytes():
                return self.queues.get(Guid(queue)) or f"public {guid_text(Guid(queue))[:SHORT_GUID]}"
            case str():
                return printable(queue)
        return "no queue"


def destination_format_name(user: UserHeader) -> str | None:
    """Return the format name of the destination queue, as in `PRIVATE=GUID\\00000011`.  [MS-MQMQ] 2.1"""
    return _destination(user.destination_type, user.destination_queue, user.queue_manager_address)


def admin_format_name(user: UserHeader) -> str | None:
    """Return the format name of the administration queue; None if there is none."""
    if user.admin_queue is None:
        return None
    return _admin(user.admin_type, user.admin_queue, user.source_queue_manager, user.queue_manager_address)


def response_format_name(user: UserHeader) -> str | None:
    """Return the response queue's format name.

    Return None if the message has no response queue, or if that is the admin queue of an unknown host.
    """
    if not user.response_type:
        return None
    source, destination = user.source_queue_manager, user.queue_manager_address
    try:
        admin = admin_from_wire(user.admin_type, user.admin_queue, source, destination)
        name = response_from_wire(user.response_type, user.response_queue, source, destination, admin)
    except FormatNameError:
        return _raw(user.response_queue)
    return None if name is None else str(name)


def printable(text: str) -> str:
    """Return text from a packet in a form that is safe to show, with harmful characters escaped."""
    return text if text.isprintable() else text.encode("unicode_escape", "replace").decode("ascii")


@lru_cache(maxsize=4_096)
def _destination(queue_type: int, queue: QueueName, manager: Guid) -> str | None:
    try:
        name = destination_from_wire(queue_type, queue, manager or NULL_GUID)
    except FormatNameError:
        return _raw(queue)
    return None if name is None else str(name)


@lru_cache(maxsize=4_096)
def _admin(queue_type: int, queue: QueueName, source: Guid, manager: Guid) -> str | None:
    try:
        name = admin_from_wire(queue_type, queue, source, manager)
    except FormatNameError:
        return _raw(queue)
    return None if name is None else str(name)


def _raw(queue: QueueName) -> str:
    """Return the raw value of a queue that has no valid format name."""
    if isinstance(queue, bytes):
        return guid_text(Guid(queue))
    return printable(queue) if isinstance(queue, str) else repr(queue)
