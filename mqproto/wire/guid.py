"""GUIDs in their form on the wire: 16 bytes, with the first three groups in little-endian order.

[MS-DTYP] 2.3.4.2. A packet carries up to five of them, so the program keeps them as bytes. Only people see them as
text.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Final, NewType

Guid = NewType("Guid", bytes)

NULL_GUID: Final = Guid(bytes(16))


def guid_from_text(text: str) -> Guid:
    """Return the 16 bytes of a GUID such as `557358d1-5055-9591-9549-97b6e611ea26`.

    Case and braces do not matter.

    Raises:
        ValueError: the text is not a GUID.
    """
    if len(text.strip("{}")) != 36:
        raise ValueError(f"{text!r} is not a GUID: write it as 00000000-0000-0000-0000-000000000000")
    return Guid(uuid.UUID(text).bytes_le)


@lru_cache(maxsize=4_096)
def guid_text(guid: Guid) -> str:
    """Return the GUID in the form that the specifications use: in upper case, without braces."""
    return str(uuid.UUID(bytes_le=guid)).upper()
