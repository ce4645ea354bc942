"""Other libraries for binary formats, on the same transactional message as our codec.

Each module in contenders/ writes the message down as its library would have it, for a private or a direct destination,
and has a function that returns a `Contender`. All of them do less than our codec: they check constants and sizes at
most, and know none of the rarer headers. Those that are not installed are named with a word on how to install them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

from mqproto.wire import UserMessage
from simulator.base.program.build import COMPILED, build

PRIVATE: Final = 3
DIRECT: Final = 7
TYPE_SHIFT: Final = 10
HAS_TRANSACTION: Final = 0x00100000


@dataclass(frozen=True, slots=True)
class Contender:
    """A library, and how it reads and writes the message.

    parse: what the library makes of the bytes.
    values: the fields of that, by their names in `values_of`.
    prepare: the library's own object for these values.
    build: its bytes; None where the library does not write.
    """

    name: str
    parse: Callable[[bytes], Any]
    values: Callable[[Any], dict[str, Any]]
    prepare: Callable[[dict[str, Any]], Any]
    build: Callable[[Any], bytes] | None


MODULES: Final = {
    "construct": "compiled",
    "dissect.cstruct": "cstruct",
    "kaitaistruct": "kaitai",
    "scapy": "layers",
}
"""What has to be installed, and the module that needs it."""


class ByHand(Protocol):
    """Code written by hand, the yardstick: `tests.bench.byhand`."""

    def parse(self, data: bytes) -> UserMessage:
        """The message in a packet."""

    def build(self, message: UserMessage) -> bytes:
        """The packet of a message."""


def by_hand() -> ByHand | None:
    """The yardstick; None in the wheel, which leaves out what only benchmarks compare with, and in the compiled build.

    It fills records through their slots, which those that are compiled do not have.
    """
    if build() == COMPILED:
        return None
    try:
        found: Any = import_module("tests.bench.byhand")
    except ModuleNotFoundError:
        return None
    yardstick: ByHand = found
    return yardstick


def contender_for(package: str) -> Contender:
    """What this package makes of the message.

    Raises:
        ImportError: it is not installed.
    """
    contender: Contender = import_module(f"tests.bench.contenders.{MODULES[package]}").contender()
    return contender


def contenders() -> tuple[list[Contender], list[str]]:
    """Those that are installed, and a line for each that is not."""
    present, missing = [], []
    for package in MODULES:
        try:
            present.append(contender_for(package))
        except ImportError:
            missing.append(f"{package} is not installed: pip install 'mqproto[bench]'")
    return present, missing


def values_of(message: UserMessage) -> dict[str, Any]:
    """The fields of a transactional message that has no further headers."""
    base, user, transaction, properties = message.base, message.user, message.transaction, message.properties
    assert transaction is not None
    return {
        "base_reserved": base.reserved,
        "base_flags": base.flags,
        "time_to_reach_queue_s": base.time_to_reach_queue_s,
        "source_queue_manager": user.source_queue_manager,
        "queue_manager_address": user.queue_manager_address,
        "time_to_be_received_s": user.time_to_be_received_s,
        "sent_time_s": user.sent_time_s,
        "message_id": user.message_id,
        "user_flags": user.flags,
        "destination_queue": user.destination_queue,
        "transaction_flags": transaction.flags,
        "ordinal": transaction.tx_sequence_id.ordinal,
        "time_stamp": transaction.tx_sequence_id.time_stamp,
        "tx_sequence_number": transaction.tx_sequence_number,
        "previous_tx_sequence_number": transaction.previous_tx_sequence_number,
        "properties_flags": properties.flags,
        "message_class": properties.message_class,
        "correlation_id": properties.correlation_id,
        "body_type": properties.body_type,
        "application_tag": properties.application_tag,
        "allocation_body_size": properties.allocation_body_size,
        "privacy_level": properties.privacy_level,
        "hash_algorithm": properties.hash_algorithm,
        "encryption_algorithm": properties.encryption_algorithm,
        "label": properties.label,
        "extension_data": properties.extension_data,
        "message_body": properties.message_body,
    }


def wide(text: str) -> bytes:
    """UTF-16 with its NUL."""
    return text.encode("utf-16-le") + b"\0\0"


def narrow(data: bytes) -> str:
    """What `wide` made."""
    return data.decode("utf-16-le")[:-1]
