"""Format names as packets carry them.

Each is a type in UserHeader.Flags, and a value that does not repeat the type. A private queue on the computer of the
source, the destination or the administration queue is sent only as a number. The queue manager's GUID is elsewhere in
the packet, so conversions in both directions need it. A connector queue is sent as the public queue with the same GUID,
and is read as a public queue. [MS-MQMQ] 2.2.18.1.5
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from mqproto.base.errors import FormatNameError
from mqproto.base.foreign import shown
from mqproto.formatname.names import (
    ConnectorName,
    DirectName,
    DistributionListName,
    FormatName,
    MultipleElementName,
    PrivateName,
    PublicName,
    SingleName,
)
from mqproto.formatname.text import parse_format_name
from mqproto.wire.guid import Guid
from mqproto.wire.layouts.multiqueue import (
    DIRECT_NAME,
    DISTRIBUTION_LIST_NAME,
    PRIVATE_NAME,
    PUBLIC_NAME,
    FormatNameList,
    MqfAddressHeader,
    MqfFormatNameElement,
    MultiQueueFormatHeader,
)
from mqproto.wire.layouts.user import (
    DIRECT,
    NO_QUEUE,
    PRIVATE_ELSEWHERE,
    PRIVATE_ON_ADMIN_HOST,
    PRIVATE_ON_DESTINATION,
    PRIVATE_ON_SOURCE,
    PUBLIC,
    SAME_AS_ADMIN_QUEUE,
    PrivateQueueFormatName,
    QueueName,
)


def destination_to_wire(name: FormatName) -> tuple[int, QueueName]:
    """Return Flags.DQ and DestinationQueue for a message to `name`.  [MS-MQMQ] 2.2.19.2

    QueueManagerAddress must be the manager in a private name, or the null GUID for a direct name.

    Raises:
        FormatNameError: a single message cannot go to this name.
    """
    match _sendable(name):
        case PrivateName(identifier=identifier):
            return PRIVATE_ON_DESTINATION, identifier
        case other:
            return _anywhere_to_wire(other)


def destination_from_wire(queue_type: int, value: QueueName, destination: Guid) -> SingleName | None:
    """Return the name that Flags.DQ and DestinationQueue stand for; None if there is none.

    `destination` is QueueManagerAddress.
    """
    return _from_wire(queue_type, value, {PRIVATE_ON_DESTINATION: destination})


def admin_from_wire(queue_type: int, value: QueueName, source: Guid, destination: Guid) -> SingleName | None:
    """Return the name that Flags.AQ and AdminQueue stand for; None if there is none.  [MS-MQQB] 3.1.7.15"""
    return _from_wire(queue_type, value, {PRIVATE_ON_SOURCE: source, PRIVATE_ON_DESTINATION: destination})


def response_from_wire(
    queue_type: int, value: QueueName, source: Guid, destination: Guid, admin: SingleName | None
) -> SingleName | None:
    """Return the name that Flags.RQ and ResponseQueue stand for; None if there is none.

    Raises:
        FormatNameError: the queue is on the administration queue's computer, and that computer's GUID is not known.
    """
    if queue_type == SAME_AS_ADMIN_QUEUE:
        return admin
    hosts = {PRIVATE_ON_SOURCE: source, PRIVATE_ON_DESTINATION: destination}
    if host := _host(admin):
        hosts[PRIVATE_ON_ADMIN_HOST] = host
    return _from_wire(queue_type, value, hosts)


def element_to_wire(name: SingleName) -> MqfFormatNameElement:
    """Return the element of a MultiQueueFormatHeader for a name. [MS-MQMQ] 2.2.18.1.4

    The element does not carry a distribution list's domain.

    Raises:
        FormatNameError: the name cannot be an element.
    """
    match _as_it_travels(name):
        case PublicName(guid, journal=False):
            return MqfFormatNameElement(PUBLIC_NAME, format_name=guid)
        case PrivateName(manager, identifier, journal=False):
            return MqfFormatNameElement(PRIVATE_NAME, format_name=PrivateQueueFormatName(manager, identifier))
        case DirectName(read_only=False) as direct:
            return MqfFormatNameElement(DIRECT_NAME, format_name=direct.wire_text)
        case DistributionListName(guid):
            return MqfFormatNameElement(DISTRIBUTION_LIST_NAME, format_name=guid)
    raise FormatNameError(
        f"{name} cannot be listed in a packet; name public, private, direct queues or lists"
    )


def element_from_wire(element: MqfFormatNameElement) -> SingleName:
    """Return the name that an element of a MultiQueueFormatHeader stands for.

    Raises:
        FormatNameError: the element's text is not a name.
    """
    match element.format_name:
        case str(text):
            return _direct(text)
        case PrivateQueueFormatName(manager, identifier):
            return PrivateName(manager, identifier)
        case guid if element.format_type == DISTRIBUTION_LIST_NAME:
            return DistributionListName(guid)
        case guid:
            return PublicName(guid)


def destinations_to_wire(names: Iterable[SingleName]) -> MultiQueueFormatHeader:
    """Return the header for a message that is copied to each of these queues.  [MS-MQMQ] 2.2.20.1

    The list is sorted, and contains each name only once, even if it was given in different case. [MS-MQDMPR] 3.1.7.3.8

    Raises:
        FormatNameError: a packet cannot list one of the names.
    """
    by_text = {str(name).casefold(): name for name in map(_as_it_travels, names)}
    elements = [element_to_wire(by_text[text]) for text in sorted(by_text)]
    return MultiQueueFormatHeader(destination=MqfAddressHeader(format_name_list=FormatNameList(elements)))


def destinations_from_wire(header: MultiQueueFormatHeader) -> list[SingleName]:
    """Return the queues that a header lists as destinations.

    Invalid elements are left out, and do not affect the others.
    """
    names = []
    for element in header.destination.format_name_list.elements:
        with suppress(FormatNameError):
            names.append(element_from_wire(element))
    return names


def _as_it_travels(name: SingleName) -> SingleName:
    """Return the name that packets carry for a queue.

    For a connector queue, it is the public name with the same GUID.
    """
    return PublicName(name.guid) if isinstance(name, ConnectorName) else name


def _anywhere_to_wire(name: SingleName) -> tuple[int, QueueName]:
    """Return the type and the value for a name whose type means the same for the destination queue, the administration
    queue and the response queue.
    """
    match _as_it_travels(name):
        case PublicName(guid):
            return PUBLIC, guid
        case DirectName() as direct:
            return DIRECT, direct.wire_text
    raise FormatNameError(f"{name} has no place in a packet; name one public, private or direct queue")


def _from_wire(queue_type: int, value: QueueName, hosts: dict[int, Guid]) -> SingleName | None:
    if queue_type == NO_QUEUE:
        return None
    match value:
        case int() if queue_type in hosts:
            return PrivateName(hosts[queue_type], value)
        case PrivateQueueFormatName(manager, identifier) if queue_type == PRIVATE_ELSEWHERE:
            return PrivateName(manager, identifier)
        case bytes() if queue_type == PUBLIC:
            return PublicName(value)
        case str() if queue_type == DIRECT:
            return _direct(value)
    raise FormatNameError(f"type {queue_type} with {value!r} names no queue that can be found from here")


def _direct(text: str) -> DirectName:
    name = parse_format_name(f"DIRECT={text}")
    if not isinstance(name, DirectName):
        raise FormatNameError(f"DIRECT={shown(text)}: a packet carries one direct name, without commas")
    return name


def _sendable(name: FormatName) -> SingleName:
    if name.read_only:
        raise FormatNameError(f"{name} is read-only and nothing can be sent to it; name the queue itself")
    if isinstance(name, MultipleElementName):
        raise FormatNameError(f"{name} has several elements; each message goes to one of them")
    return name


def _host(name: FormatName | None) -> Guid | None:
    """Return the queue manager in a private name; None for other names."""
    return name.manager if isinstance(name, PrivateName) else None
