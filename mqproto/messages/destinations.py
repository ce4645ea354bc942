"""Destinations of messages: what a format name means to a queue manager.  [MS-MQQB] 3.1.7.4"""

from __future__ import annotations

from dataclasses import dataclass

from mqproto.formatname import ConnectorName, DirectName, FormatName, PrivateName, Protocol, PublicName
from mqproto.formatname.wire import destination_from_wire
from mqproto.routing import Routes
from mqproto.wire import NULL_GUID, UserMessage
from mqproto.wire.guid import Guid


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a message.

    name: the canonical format name; each name has its own sequence of transactional messages.
    manager: the queue manager that hosts the queue; None if only a direct format name leads there.
    queue: the queue's name in the UserHeader: a private queue's identifier, a public queue's GUID, or the text of a
        direct format name without `DIRECT=`.
    host: the host that a direct format name calls; None for other names.
    transactional: for a connector format name, whether it is for transactional messages rather than all others; None
        for other names, because their queues decide.
    """

    name: str
    manager: Guid | None
    queue: int | Guid | str
    host: str | None = None
    transactional: bool | None = None

    @property
    def address(self) -> Guid:
        """QueueManagerAddress, which is null for direct format names.  [MS-MQMQ] 2.2.19.2"""
        return NULL_GUID if self.host is not None or self.manager is None else self.manager


def destination_of(name: FormatName, routes: Routes, identity: Guid) -> Destination | None:
    """Return the destination that a format name stands for at the queue manager `identity`.

    Return None if this queue manager cannot send to the name.
    """
    match name:
        case PrivateName(journal=False):
            return Destination(str(name), name.manager, name.identifier)
        case PublicName(journal=False) if name.guid in routes.publics:
            return Destination(str(name), routes.publics[name.guid], name.guid)
        case ConnectorName(guid, transactional) if guid in routes.publics:
            # In packets it is the public queue of this GUID, and a sequence goes by that.
            return Destination(str(PublicName(guid)), routes.publics[guid], guid, transactional=transactional)
        case DirectName(protocol=Protocol.TCP | Protocol.OS, read_only=False):
            host = name.address.lower()
            manager = identity if host in routes.own_hosts else routes.to_host(host).manager
            return Destination(str(name), manager, name.wire_text, host)
    return None


def destination_in(message: UserMessage, routes: Routes, identity: Guid) -> Destination | None:
    """Return the destination of a message that was on its way.

    Return None if this queue manager has no name for it.
    """
    user = message.user
    name = destination_from_wire(user.destination_type, user.destination_queue, user.queue_manager_address)
    return None if name is None else destination_of(name, routes, identity)
