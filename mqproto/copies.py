"""One message to several queues: a copy for each, and in each copy the list of all.  [MS-MQMQ] 2.1.7, 2.2.20.1"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from mqproto.destinations import Destination
from mqproto.errors import FormatNameError, UsageError
from mqproto.formatname import MultipleElementName, parse_format_name
from mqproto.formatname.wire import destinations_to_wire
from mqproto.wire import MultiQueueFormatHeader

if TYPE_CHECKING:
    from mqproto.applications import Draft

DESTINATION_LIMIT: Final = 100
"""How many queues may get a copy of one message; each copy lists them all."""
ELEMENT_BYTES: Final = 16
"""What a name takes in that list beside two bytes for each of its characters, at most."""


def copies(destinations: Sequence[Destination], drafts: Iterable[Draft]) -> list[tuple[Destination, Draft]]:
    """What to enqueue so that each destination gets each message.  [MS-MQDMPR] 3.1.7.1.27

    The copies of one message stand together. Each is numbered by itself, and enqueued together they are accepted all or
    none.
    """
    if len(destinations) == 1:
        return [(destinations[0], draft) for draft in drafts]
    names = tuple(destination.name for destination in destinations)
    listing = [replace(draft, destinations=names) for draft in drafts]
    return [(destination, draft) for draft in listing for destination in destinations]


@lru_cache(maxsize=100)
def list_of_all(names: tuple[str, ...]) -> MultiQueueFormatHeader | None:
    """The header that lists all queues which get a copy; None if they are no more than one.  [MS-MQMQ] 2.2.20.1

    Raises:
        UsageError: there are too many, or no message can be sent to one of them.
    """
    if len(names) > DESTINATION_LIMIT:
        raise UsageError(
            f"{len(names):,} destinations: a message goes to at most {DESTINATION_LIMIT} at once"
        )
    elements = []
    try:
        for name in names:
            element = parse_format_name(name)
            if isinstance(element, MultipleElementName):
                raise UsageError(f"{name} has several elements: name each by itself")
            elements.append(element)
        header = destinations_to_wire(elements)
    except FormatNameError as error:
        raise UsageError(str(error)) from None
    return header if len(header.destination.format_name_list.elements) > 1 else None


def list_bytes(names: Iterable[str]) -> int:
    """What the list takes in a packet, at most."""
    return sum(2 * len(name) + ELEMENT_BYTES for name in names)
