"""The TransactionHeader, and the identifier of a sequence.  [MS-MQMQ] 2.2.18.1.2, 2.2.20.5"""

from __future__ import annotations

from dataclasses import dataclass, field

from construct import Int32ul, this

from mqproto.wire.guid import Guid
from mqproto.wire.schema.layout import Layout, Must
from mqproto.wire.schema.parts import GuidOctets, When
from mqproto.wire.schema.record import Bit, Bits, Record


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class TxSequenceId:
    """Identifies one sequence of transactional messages.  [MS-MQMQ] 2.2.18.1.2

    The fields are in the order in which they are compared: TimeStamp is the high half. On the wire, TimeStamp comes
    second, so callers pass the fields by name.
    """

    time_stamp: int = 0
    ordinal: int = 0


tx_sequence_id = Record(
    TxSequenceId,
    Layout("[MS-MQMQ] 2.2.18.1.2", "ordinal" / Int32ul, "time_stamp" / Int32ul),
)
assert tx_sequence_id.sizeof() == 8


@dataclass(slots=True)
class TransactionHeader:
    """The place of a message in its sequence.  [MS-MQMQ] 2.2.20.5

    Numbers start from 1; previous_tx_sequence_number is 0 for the first message.
    """

    flags: int = 0
    tx_sequence_id: TxSequenceId = field(default_factory=TxSequenceId)
    tx_sequence_number: int = 1
    previous_tx_sequence_number: int = 0
    connector_qm_guid: Guid | None = None

    connector = Bit(0)
    final_ack = Bit(1)
    first = Bit(2)
    last = Bit(3)
    identifier = Bits(4, 20)


transaction_header = Record(
    TransactionHeader,
    Layout(
        "[MS-MQMQ] 2.2.20.5",
        "flags" / Int32ul,
        "tx_sequence_id" / tx_sequence_id,
        "tx_sequence_number" / Int32ul,
        Must("tx_sequence_number", this.tx_sequence_number >= 1, "at least 1"),
        "previous_tx_sequence_number" / Int32ul,
        Must(
            "previous_tx_sequence_number",
            this.previous_tx_sequence_number <= 0xFFFFFFFE,
            "at most 0xfffffffe",
        ),
        "connector_qm_guid" / When(TransactionHeader.connector.within(this.flags), GuidOctets()),
    ),
)
