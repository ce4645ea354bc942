"""The list of all queues that get a copy of one message, which each copy carries.  [MS-MQMQ] 2.1.7, 2.2.20.1"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.formatname import MultipleElementName, parse_format_name
from mqproto.formatname.wire import destinations_to_wire
from mqproto.wire import MultiQueueFormatHeader

DESTINATION_LIMIT: Final = 100
"""The maximum number of queues that may get a copy of one message; each copy lists them all."""
ELEMENT_BYTES: Final = 16
"""The maximum number of bytes that a name takes in a list of destinations, in addition to two bytes for each of its
characters.
"""


@lru_cache(maxsize=100)
def list_of_all(names: tuple[str, ...]) -> MultiQueueFormatHeader | None:
    """Return the header that lists all queues that get a copy.  [MS-MQMQ] 2.2.20.1

    Return None if there is only one queue.

    Raises:
        UsageError: there are too many queues, or messages cannot be sent to one of them.
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
    """Return the maximum number of bytes that the list takes in a packet."""
    return sum(2 * len(name) + ELEMENT_BYTES for name in names)
