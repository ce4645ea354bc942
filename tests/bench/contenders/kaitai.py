"""Kaitai Struct's runtime, with the reader as its compiler would write it from a .ksy. It is for reading alone."""

from __future__ import annotations

import io
from typing import Any

from kaitaistruct import KaitaiStream, KaitaiStruct

from mqproto.wire.layouts.base import SIGNATURE, VERSION_NUMBER
from tests.bench.measures.others import DIRECT, HAS_TRANSACTION, PRIVATE, TYPE_SHIFT, Contender


class Part(KaitaiStruct):  # type: ignore[misc]
    """What the compiler repeats in each class."""

    def __init__(self, stream: Any, parent: Any = None, root: Any = None) -> None:
        super().__init__(stream)
        self._parent = parent
        self._root = root or self
        self._read()

    def _read(self) -> None:
        raise NotImplementedError


class Base(Part):
    def _read(self) -> None:
        self.version_number = self._io.read_u1()
        if self.version_number != VERSION_NUMBER:
            raise ValueError("VersionNumber")
        self.base_reserved = self._io.read_u1()
        self.base_flags = self._io.read_u2le()
        self.signature = self._io.read_u4le()
        if self.signature != SIGNATURE:
            raise ValueError("Signature")
        self.packet_size = self._io.read_u4le()
        self.time_to_reach_queue_s = self._io.read_u4le()


class Direct(Part):
    def _read(self) -> None:
        self.count = self._io.read_u2le()
        self.name = self._io.read_bytes(self.count).decode("UTF-16LE")
        self.padding = self._io.read_bytes(-self._io.pos() & 3)


class User(Part):
    def _read(self) -> None:
        self.source_queue_manager = self._io.read_bytes(16)
        self.queue_manager_address = self._io.read_bytes(16)
        self.time_to_be_received_s = self._io.read_u4le()
        self.sent_time_s = self._io.read_u4le()
        self.message_id = self._io.read_u4le()
        self.user_flags = self._io.read_u4le()
        kind = self.user_flags >> TYPE_SHIFT & 7
        if kind == PRIVATE:
            self.destination_queue = self._io.read_u4le()
        elif kind == DIRECT:
            self.destination_queue = Direct(self._io, self, self._root)


class Transaction(Part):
    def _read(self) -> None:
        self.transaction_flags = self._io.read_u4le()
        self.ordinal = self._io.read_u4le()
        self.time_stamp = self._io.read_u4le()
        self.tx_sequence_number = self._io.read_u4le()
        self.previous_tx_sequence_number = self._io.read_u4le()
        if self.transaction_flags & 1:
            self.connector_qm_guid = self._io.read_bytes(16)


class Properties(Part):
    def _read(self) -> None:
        self.properties_flags = self._io.read_u1()
        self.label_length = self._io.read_u1()
        self.message_class = self._io.read_u2le()
        self.correlation_id = self._io.read_bytes(20)
        self.body_type = self._io.read_u4le()
        self.application_tag = self._io.read_u4le()
        self.message_size = self._io.read_u4le()
        self.allocation_body_size = self._io.read_u4le()
        self.privacy_level = self._io.read_u4le()
        self.hash_algorithm = self._io.read_u4le()
        self.encryption_algorithm = self._io.read_u4le()
        self.extension_size = self._io.read_u4le()
        self.label = self._io.read_bytes(2 * self.label_length).decode("UTF-16LE")
        self.extension_data = self._io.read_bytes(self.extension_size)
        self.message_body = self._io.read_bytes(self.message_size)
        self.padding = self._io.read_bytes(-self._io.pos() & 3)


class Message(Part):
    def _read(self) -> None:
        self.base = Base(self._io, self, self._root)
        self.user = User(self._io, self, self._root)
        if self.user.user_flags & HAS_TRANSACTION:
            self.transaction = Transaction(self._io, self, self._root)
        self.properties = Properties(self._io, self, self._root)


def contender() -> Contender:
    """The reader alone."""
    return Contender("kaitai", parse, values, lambda fields: None, None)


def parse(data: bytes) -> Message:
    return Message(KaitaiStream(io.BytesIO(data)))


def values(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in (message.base, message.user, message.transaction, message.properties):
        found |= vars(part)
    queue = found["destination_queue"]
    name = queue if isinstance(queue, int) else queue.name[:-1]
    return found | {"destination_queue": name, "label": found["label"][:-1]}
