"""The MessageBody of OrderAcks and FinalAcks.  [MS-MQQB] 2.2.4.1, 2.2.5.1"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from construct import Int32ul

from mqproto.wire.guid import NULL_GUID, Guid
from mqproto.wire.layouts.transaction import TxSequenceId, tx_sequence_id
from mqproto.wire.schema.layout import Layout
from mqproto.wire.schema.parts import GuidOctets, Octets
from mqproto.wire.schema.record import Record


@dataclass(slots=True)
class OrderAckBody:
    """All messages up to this number have arrived, in order.  [MS-MQQB] 2.2.4.1

    The specification puts the number into tx_sequence_number. A sender may instead put it into tx_sequence_id.ordinal,
    with zeros for the time stamp and for tx_sequence_number. Both forms are kept as they came.
    """

    tx_sequence_id: TxSequenceId = field(default_factory=TxSequenceId)
    tx_sequence_number: int = 0
    tx_previous_sequence_number: int = 0
    reserved: bytes = bytes(20)

    @property
    def number(self) -> int | None:
        """The number that the last arrived message has, if this packet shows it.  [MS-MQQB] 3.1.1.6.2

        None if there is a time stamp but no number. Then either no message has arrived, or only the sender of the
        packet knows the number.
        """
        named = self.tx_sequence_id
        return self.tx_sequence_number or (None if named.time_stamp else named.ordinal)


order_ack_body = Record(
    OrderAckBody,
    Layout(
        "[MS-MQQB] 2.2.4.1",
        "tx_sequence_id" / tx_sequence_id,
        "tx_sequence_number" / Int32ul,
        "tx_previous_sequence_number" / Int32ul,
        "reserved" / Octets(20),
    ),
)


@dataclass(slots=True)
class FinalAckBody:
    """One message was received, or was refused for good; its class says which.  [MS-MQQB] 2.2.5.1"""

    tx_sequence_id: TxSequenceId = field(default_factory=TxSequenceId)
    tx_sequence_number: int = 0
    tx_previous_sequence_number: int = 0
    source_guid: Guid = NULL_GUID
    message_id: int = 0


final_ack_body = Record(
    FinalAckBody,
    Layout(
        "[MS-MQQB] 2.2.5.1",
        "tx_sequence_id" / tx_sequence_id,
        "tx_sequence_number" / Int32ul,
        "tx_previous_sequence_number" / Int32ul,
        "source_guid" / GuidOctets(),
        "message_id" / Int32ul,
    ),
)
BODY_SIZE: Final = 0x24
assert order_ack_body.sizeof() == final_ack_body.sizeof() == BODY_SIZE
