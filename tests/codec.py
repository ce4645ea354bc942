"""`make codec`: regenerates mqproto/wire/generated.py from the layouts."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Final

from tests.conformance import ROOT

GENERATED: Final = ROOT / "mqproto" / "wire" / "generated.py"
HEADERS: Final = ("transaction", "properties", "trailing")
"""The headers for which a UserMessage is searched."""


def codec() -> str:
    """Return the source of the functions that mqproto needs, before it is formatted."""
    from mqproto.wire.layouts.acknowledgment import final_ack_body, order_ack_body
    from mqproto.wire.layouts.session import session_header
    from mqproto.wire.packets import INTERNAL_PACKETS, user_message_packet
    from mqproto.wire.schema.generator.module import module
    from mqproto.wire.schema.generator.reading import checker, finder, reader
    from mqproto.wire.schema.generator.writing import builder

    records: list[Any] = [
        *(user_message_packet, session_header, *INTERNAL_PACKETS.values()),
        *(order_ack_body, final_ack_body),
    ]
    return module(
        [
            *map(reader, records),
            checker(user_message_packet),
            *(finder(user_message_packet, name) for name in HEADERS),
            *map(builder, records),
        ]
    )


def without_the_one_in_the_tree() -> str:
    """Return the codec's source even if the generated file does not fit the layouts and so cannot be imported."""
    wire = ModuleType("mqproto.wire")
    wire.__path__ = [str(GENERATED.parent)]
    sys.modules["mqproto.wire"] = wire
    return codec()


if __name__ == "__main__":
    GENERATED.write_text(without_the_one_in_the_tree(), "utf-8")
