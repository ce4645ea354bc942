"""The packets with which a fuzzer begins: one of every kind, generated ones, and the user's own."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from mqproto.base.errors import UsageError
from mqproto.captures.files.frame import CaptureError
from mqproto.captures.files.pasted import INPUT_LIMIT_BYTES
from mqproto.captures.files.pcap import MAGICS
from mqproto.captures.packets import read_packets
from mqproto.simulator.command.show import read_source
from mqproto.simulator.fuzz.mutations import fields_of
from mqproto.simulator.fuzz.parser.codec import way_of
from mqproto.simulator.fuzz.parser.judges import place
from mqproto.simulator.fuzz.roles import role_of
from mqproto.wire import (
    ConnectionParameters,
    DebugHeader,
    FinalAck,
    FinalAckBody,
    FormatNameList,
    Guid,
    MessageClass,
    MqfAddressHeader,
    MqfFormatNameElement,
    MqfSignatureHeader,
    MultiQueueFormatHeader,
    OrderAck,
    OrderAckBody,
    Packet,
    Ping,
    PrivateQueueFormatName,
    SecurityHeader,
    SessionAck,
    SessionHeader,
    SimpleBlob,
    SoapHeader,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    encode_packet,
    establish_connection,
    ping_packet,
    simple_blob,
    user_message,
)
from mqproto.wire.codec import decode_or_refuse
from mqproto.wire.layouts.multiqueue import DIRECT_NAME, DISTRIBUTION_LIST_NAME, PRIVATE_NAME, PUBLIC_NAME
from mqproto.wire.layouts.properties import LONGEST_LABEL
from mqproto.wire.messages import ORDER_QUEUE
from mqproto.wire.schema.refused import REFUSALS

LONGEST_WORD: Final = 32
"""The maximum length, in bytes, of a field's value that goes into the dictionary."""
ALIKE: Final = 8
"""The maximum number of packets with the same headers that are taken from the user's files."""

HERE: Final = Guid(b"from the fuzzer.")
THERE: Final = Guid(b"to anybody there")
SENT_S: Final = 1_700_000_000
SEQUENCE: Final = TxSequenceId(time_stamp=SENT_S, ordinal=1)
PRIVATE: Final = PrivateQueueFormatName(THERE, 17)
LISTS: Final = "multi_queue_format"
HEADERS: Final = ("transaction", "security", "debug", "soap", "session")
"""The optional headers, except the lists of queues, which are rare here because they are slow to read."""


def examples() -> list[bytes]:
    """Return one valid packet of each kind, and messages with every header and every kind of queue name."""
    order, final = OrderAckBody(SEQUENCE, 2, 1), FinalAckBody(SEQUENCE, 2, 1, HERE, 5)
    packets: list[Packet] = [
        establish_connection(client=HERE, server=THERE, time_stamp_ms=501_140_046),
        ConnectionParameters(recoverable_ack_timeout_ms=1_496, ack_timeout_ms=120_000, window_size=64),
        SessionAck(session=SessionHeader(ack_sequence_number=3, user_msg_sequence_number=2)),
        _message(17),
        _message(THERE, label="label", body=b"body of seven"),
        _message(r"OS:computer\private$\orders", extension=b"extra"),
        _with_headers(_message(17), "transaction"),
        _with_headers(_message(17, admin_queue=PRIVATE), "security", "session"),
        _with_headers(_message(17, label="label", response_queue="TCP:10.0.0.1\\q"), "debug", "soap"),
        _with_headers(_message(17), LISTS),
        _with_headers(_message("OS:a\\q", admin_queue=9, response_queue=THERE), *HEADERS, LISTS),
        OrderAck(**ACKNOWLEDGED, body=order).message(),
        FinalAck(**ACKNOWLEDGED, body=final, message_class=MessageClass.ACK_RECEIVE).message(),
    ]
    return [encode_packet(packet) for packet in packets]


def a_ping() -> bytes:
    """Return a Ping, for parsers that read datagrams as well."""
    return ping_packet.encode(Ping(cookie=4, qm_guid=HERE))


def generated(dice: random.Random) -> bytes:
    """Return a valid message with random headers, sizes and kinds of queue names."""
    message = _message(
        dice.choice((17, THERE, _direct_name(dice))),
        admin_queue=dice.choice((None, 9, THERE, PRIVATE, _direct_name(dice))),
        response_queue=dice.choice((None, 9, THERE, PRIVATE, _direct_name(dice))),
        label=dice.choice(("", "label", "x" * LONGEST_LABEL, "\U0001f4e8")),
        extension=dice.randbytes(dice.choice((0, 0, 5))),
        body=dice.randbytes(dice.choice((0, 1, 2, 3, 4, 40, 1_000))),
        recoverable=dice.random() < 0.5,
        acknowledgments=dice.randrange(16),
    )
    chosen = [name for name in HEADERS if dice.random() < 0.4]
    return encode_packet(_with_headers(message, *chosen, *([LISTS] if dice.random() < 0.03 else [])))


def from_files(paths: Iterable[Path], *, as_they_are: bool = False) -> list[bytes]:
    """Return the packets in captures, in files with one packet as bytes or hex, or in folders of these.

    Of many similar packets, only a few are taken, because the mutations of all of them would be the same.

    Args:
        as_they_are: whether the files hold something other than packets. If so, each file is taken as a whole.

    Raises:
        UsageError: a file cannot be read as any of these.
    """
    met: Counter[Hashable] = Counter()
    found: dict[bytes, None] = {}
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else []
        files = [file for file in inside if file.is_file() and file.suffix != ".toml"]
        for file in files if path.is_dir() else [path]:
            for packet in [file.read_bytes()] if as_they_are else _packets_in(file):
                shape = len(found) if as_they_are else _shape_of(packet)
                if met[shape] < ALIKE and packet not in found:
                    met[shape] += 1
                    found[packet] = None
    return list(found)


def save_corpus(folder: Path, packets: Iterable[bytes]) -> None:
    """Write packets for other fuzzers, one per file; next to the folder, write a dictionary, FOLDER.dict.

    The dictionary is for AFL++ and libFuzzer. It holds the values of fields, and the limits in the rules of their
    layouts.
    """
    words: dict[bytes, str] = {}
    for number, packet in enumerate(dict.fromkeys(packets)):
        (folder / f"packet-{number:04}.bin").write_bytes(packet)
        for field in fields_of(packet):
            values = [field.raw]
            if isinstance(field.value, int):
                limits = role_of(field.section, field.name).limits
                values += [
                    limit.to_bytes(field.size, "little") for limit in limits if limit < 256**field.size
                ]
            for value in values:
                if 1 < len(value) <= LONGEST_WORD and any(value):
                    words.setdefault(value, re.sub(r"\W+", "_", field.name))
    lines = []
    for number, (value, name) in enumerate(words.items()):
        escaped = "".join(f"\\x{byte:02x}" for byte in value)
        lines.append(f'{name}_{number}="{escaped}"\n')
    folder.with_name(f"{folder.name}.dict").write_text("".join(lines))


def _packets_in(path: Path) -> Iterator[bytes]:
    if not path.is_file():
        yield from read_source(str(path))  # It raises the error for a missing file.
        return
    with path.open("rb") as file:
        head = file.read(max(map(len, MAGICS)))
    if path.suffix == ".bin":
        yield path.read_bytes()[:INPUT_LIMIT_BYTES]  # A file kept by a fuzzer may look like anything.
    elif head.startswith(MAGICS):
        try:
            yield from (packet.data for packet in read_packets(path))
        except CaptureError as error:
            raise UsageError(f"{error}; mend it, or leave it out") from None
    else:
        yield from read_source(str(path))


def _shape_of(packet: bytes) -> Hashable:
    try:
        return way_of(decode_or_refuse(packet))
    except REFUSALS as refusal:
        return place(refusal.__traceback__)


def _direct_name(dice: random.Random) -> str:
    return "OS:a\\" + "q" * dice.randrange(20)


def _message(destination: int | Guid | str, **more: Any) -> UserMessage:
    wanted: dict[str, Any] = {"body": b"hello", **more}
    return user_message(
        source=HERE,
        destination_manager=THERE,
        destination=destination,
        message_id=5,
        sent_time_s=SENT_S,
        **wanted,
    )


ACKNOWLEDGED: Final[dict[str, Any]] = {
    "source": HERE,
    "destination_manager": THERE,
    "destination": ORDER_QUEUE,
    "message_id": 9,
    "sent_time_s": SENT_S,
}


def _with_headers(message: UserMessage, *names: str) -> UserMessage:
    """Add these headers, and the flags that announce them, to a message; return it."""
    if "transaction" in names:
        message.user.recoverable = message.user.has_transaction = True
        message.transaction = TransactionHeader(0, SEQUENCE, 2, 1, HERE)
        message.transaction.connector = message.transaction.first = message.transaction.last = True
        message.base.priority = 0
        message.user.has_connector_type = True
        message.user.connector_type = THERE
    if "security" in names:
        message.user.has_security = True
        message.security = SecurityHeader(
            sender_id=HERE,
            encryption_key=simple_blob.encode(SimpleBlob(encrypted_key=bytes(range(64)))),
            signature=b"signed",
            sender_cert=b"certificate",
            provider_info=b"\1\0\0\0p\0\0\0",
        )
        message.security.sender_id_type = 2
        message.security.has_security_data = True
    if "debug" in names:
        message.base.debug_header = True
        message.debug = DebugHeader(flags=1, queue_identifier=THERE)
    if "soap" in names:
        message.user.has_soap = True
        message.soap = SoapHeader(header="<header/>", body="<body/>")
    if LISTS in names:
        message.user.has_multi_queue_format = True
        message.multi_queue_format = _lists()
    if "session" in names:
        message.base.session_header = True
        message.session = SessionHeader(ack_sequence_number=3, user_msg_sequence_number=2)
    return message


def _lists() -> MultiQueueFormatHeader:
    """Return a header with three lists.

    The first has a name of every kind, the second has one name, and the third is empty.
    """
    names = [
        MqfFormatNameElement(PUBLIC_NAME, b"", THERE),
        MqfFormatNameElement(PRIVATE_NAME, b"", PRIVATE),
        MqfFormatNameElement(DIRECT_NAME, b"", r"OS:one\q"),
        MqfFormatNameElement(DISTRIBUTION_LIST_NAME, b"", THERE),
    ]
    return MultiQueueFormatHeader(
        destination=MqfAddressHeader(format_name_list=FormatNameList(names)),
        administration=MqfAddressHeader(format_name_list=FormatNameList(names[2:3])),
        signature=MqfSignatureHeader(signature=b"12345"),
    )
