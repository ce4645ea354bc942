"""Messages as an application receives them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from mqproto.errors import FormatNameError
from mqproto.formatname.wire import destinations_from_wire
from mqproto.wire import Guid, UserMessage, decode_packet, guid_text


class MessageId(NamedTuple):
    r"""A message's name in the world, printed as `GUID\ordinal`.  [MS-MQMQ] 2.2.18.1.3"""

    manager: Guid
    ordinal: int

    def __str__(self) -> str:
        return f"{guid_text(self.manager)}\\{self.ordinal}"


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message as an application sees it; `record` has every field of its packet."""

    record: UserMessage

    @property
    def body(self) -> bytes:
        """Opaque bytes."""
        return self.record.properties.message_body

    @property
    def label(self) -> str:
        """Empty if it has none."""
        return self.record.properties.label or ""

    @property
    def extension(self) -> bytes:
        """Opaque bytes."""
        return self.record.properties.extension_data

    @property
    def id(self) -> MessageId:
        """Its name, the same at every queue manager on its way."""
        return MessageId(self.record.user.source_queue_manager, self.record.user.message_id)

    @property
    def source(self) -> Guid:
        """The queue manager that sent it first."""
        return self.record.user.source_queue_manager

    @property
    def sent_time(self) -> datetime:
        """When it was sent first, to the second."""
        return datetime.fromtimestamp(self.record.user.sent_time_s, UTC)

    @property
    def priority(self) -> int:
        """0 to 7."""
        return self.record.base.priority

    @property
    def transactional(self) -> bool:
        """Whether it came exactly once and in order."""
        return self.record.transaction is not None

    @property
    def destinations(self) -> list[str]:
        """The format names of all queues that got a copy, if there are several and their names can be read."""
        header = self.record.multi_queue_format
        if header is None:
            return []
        try:
            return [str(name) for name in destinations_from_wire(header)]
        except FormatNameError:
            return []


def decoded(packets: Iterable[bytes]) -> list[ReceivedMessage]:
    """The messages that are in packets."""
    messages = []
    for packet in packets:
        record = decode_packet(packet)
        assert isinstance(record, UserMessage)
        messages.append(ReceivedMessage(record))
    return messages
