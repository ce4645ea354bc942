"""Strategies for headers: all that the specification allows, with limit values and reserved bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, ParamSpec, TypeVar, cast

from hypothesis import strategies as st

from mqproto.testing.keyblobs import simple_blobs
from mqproto.wire import (
    NULL_GUID,
    BaseHeader,
    DebugHeader,
    FormatNameList,
    Guid,
    MessageClass,
    MessagePropertiesHeader,
    MqfAddressHeader,
    MqfFormatNameElement,
    MqfSignatureHeader,
    MultiQueueFormatHeader,
    PrivateQueueFormatName,
    QueueName,
    SecurityHeader,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    sid_from_text,
    simple_blob,
)
from mqproto.wire.layouts.multiqueue import DIRECT_NAME, DISTRIBUTION_LIST_NAME, PRIVATE_NAME, PUBLIC_NAME
from mqproto.wire.layouts.properties import LONGEST_LABEL
from mqproto.wire.layouts.user import (
    DIRECT,
    MAXIMUM_HOP_COUNT,
    NO_QUEUE,
    PRIVATE_ELSEWHERE,
    PRIVATE_ON_ADMIN_HOST,
    PRIVATE_ON_DESTINATION,
    PRIVATE_ON_SOURCE,
    PUBLIC,
    SAME_AS_ADMIN_QUEUE,
)

P = ParamSpec("P")
T = TypeVar("T")


def made_once(make: Callable[P, st.SearchStrategy[T]]) -> Callable[P, st.SearchStrategy[T]]:
    """Cache the strategies that a function returns.

    Hypothesis examines each new strategy, which takes as long as a draw.
    """
    return cast("Callable[P, st.SearchStrategy[T]]", cache(make))


U8: Final = st.sampled_from([0, 0xFF]) | st.integers(0, 0xFF)
U16: Final = st.sampled_from([0, 0xFFFF]) | st.integers(0, 0xFFFF)
U32: Final = st.sampled_from([0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]) | st.integers(0, 0xFFFFFFFF)

# A draw costs hypothesis about 40 µs, and a choice of two strategies takes two. A message has forty numbers and GUIDs;
# in whole headers each takes one draw, whose lowest bit says whether it is at a limit.
_BYTE: Final = st.integers(0, 2 * 0xFF + 1)
_HALF: Final = st.integers(0, 2 * 0xFFFF + 1)
_WORD: Final = st.integers(0, 2 * 0xFFFFFFFF + 1)
_GUID: Final = st.binary(min_size=17, max_size=17)


def u8(draw: st.DrawFn) -> int:
    """Draw a number as `U8` does, but in a single draw."""
    number = draw(_BYTE)
    return (0, 0xFF)[number >> 1 & 1] if number & 1 else number >> 1


def u16(draw: st.DrawFn) -> int:
    """Draw a number as `U16` does, but in a single draw."""
    number = draw(_HALF)
    return (0, 0xFFFF)[number >> 1 & 1] if number & 1 else number >> 1


def u32(draw: st.DrawFn) -> int:
    """Draw a number as `U32` does, but in a single draw."""
    number = draw(_WORD)
    return (0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)[number >> 1 & 3] if number & 1 else number >> 1


def guid(draw: st.DrawFn) -> Guid:
    """Draw a GUID as `guids` does, but in a single draw."""
    data = draw(_GUID)
    return NULL_GUID if data[16] & 1 else Guid(data[:16])


@made_once
def guids() -> st.SearchStrategy[Guid]:
    """Return a strategy for any GUID, sometimes the null GUID."""
    return st.just(NULL_GUID) | st.binary(min_size=16, max_size=16).map(Guid)


@made_once
def queue_managers() -> st.SearchStrategy[Guid]:
    """Return a strategy for the GUID of a queue manager, which is never null."""
    return st.integers(1, 2**128 - 1).map(lambda number: Guid(number.to_bytes(16, "big")))


@made_once
def padding() -> st.SearchStrategy[bytes]:
    """Return a strategy for padding bytes, with any content that a sender may leave there.

    Only padding of the right size reaches the wire.
    """
    return st.binary(max_size=3)


@made_once
def texts(longest: int) -> st.SearchStrategy[str]:
    """Return a strategy for text without NUL, of at most `longest` UTF-16 units.

    Unpaired surrogates are included.
    """
    characters = st.characters(exclude_characters="\0", exclude_categories=())
    return st.text(characters, max_size=longest).map(lambda text: _cut(text, longest))


def _cut(text: str, longest: int) -> str:
    # Two surrogates in a row become one character on the way back.
    units = text.encode("utf-16-le", "surrogatepass")[: 2 * longest]
    return units.decode("utf-16-le", "surrogatepass")


@made_once
def labels() -> st.SearchStrategy[str | None]:
    """Return a strategy for None, a label of nothing but its NUL, short labels, and the longest label."""
    return st.none() | texts(12) | st.just("x" * LONGEST_LABEL) | texts(60)


@made_once
def direct_names() -> st.SearchStrategy[str]:
    """Return a strategy for direct format names as on the wire, without `DIRECT=`, and for other texts."""
    usual = st.from_regex(r"(OS:[a-z]{1,15}|TCP:127\.0\.0\.[1-9])\\(private\$\\)?[a-z]{1,10}", fullmatch=True)
    return usual | texts(20) | st.just("OS:" + "q" * 300)


@made_once
def private_queue_format_names() -> st.SearchStrategy[PrivateQueueFormatName]:
    return st.builds(PrivateQueueFormatName, guids(), U32)


@made_once
def tx_sequence_ids() -> st.SearchStrategy[TxSequenceId]:
    return st.builds(TxSequenceId, time_stamp=U32, ordinal=U32)


@made_once
@st.composite
def base_headers(
    draw: st.DrawFn, *, internal: bool = False, session: bool = False, debug: bool = False
) -> BaseHeader:
    """Draw a BaseHeader whose bits announce exactly these headers. TR is set only together with DH."""
    header = BaseHeader(reserved=u8(draw), flags=u16(draw), time_to_reach_queue_s=u32(draw))
    header.internal = internal
    header.session_header = session
    header.debug_header = debug
    header.trace = debug and header.trace
    return header


@made_once
def queue_name(kind: int) -> st.SearchStrategy[QueueName]:
    """Return a strategy for a queue's name, of the type that these bits give."""
    if kind in (NO_QUEUE, SAME_AS_ADMIN_QUEUE):
        return st.none()
    if kind == PUBLIC:
        return guids()
    if kind == PRIVATE_ELSEWHERE:
        return private_queue_format_names()
    if kind == DIRECT:
        return direct_names()
    return U32


DESTINATION_TYPES: Final = (NO_QUEUE, PRIVATE_ON_DESTINATION, PUBLIC, DIRECT)
ADMIN_TYPES: Final = (NO_QUEUE, PRIVATE_ON_SOURCE, PRIVATE_ON_DESTINATION, PUBLIC, PRIVATE_ELSEWHERE, DIRECT)
RESPONSE_TYPES: Final = (*ADMIN_TYPES, SAME_AS_ADMIN_QUEUE, PRIVATE_ON_ADMIN_HOST)


@made_once
@st.composite
def user_headers(
    draw: st.DrawFn,
    *,
    transaction: bool = False,
    security: bool = False,
    soap: bool = False,
    multi_queue_format: bool = False,
) -> UserHeader:
    """Draw a UserHeader whose bits announce exactly these headers."""
    header = UserHeader(
        source_queue_manager=guid(draw),
        queue_manager_address=guid(draw),
        time_to_be_received_s=u32(draw),
        sent_time_s=u32(draw),
        message_id=u32(draw),
        flags=u32(draw),
        destination_padding=draw(padding()),
        admin_padding=draw(padding()),
        response_padding=draw(padding()),
    )
    header.hop_count = draw(st.integers(0, MAXIMUM_HOP_COUNT))
    header.delivery_mode = 1 if transaction else draw(st.integers(0, 1))
    header.destination_type = draw(st.sampled_from(DESTINATION_TYPES))
    header.destination_queue = draw(queue_name(header.destination_type))
    header.admin_type = draw(st.sampled_from(ADMIN_TYPES))
    header.admin_queue = draw(queue_name(header.admin_type))
    header.response_type = draw(st.sampled_from(RESPONSE_TYPES))
    header.response_queue = draw(queue_name(header.response_type))
    header.has_transaction = transaction
    header.has_security = security
    header.has_properties = True
    header.has_soap = soap
    header.has_multi_queue_format = multi_queue_format
    header.over_http = False
    if header.has_connector_type:
        header.connector_type = guid(draw)
    return header


@made_once
@st.composite
def transaction_headers(draw: st.DrawFn) -> TransactionHeader:
    header = TransactionHeader(
        flags=u32(draw),
        tx_sequence_id=TxSequenceId(time_stamp=u32(draw), ordinal=u32(draw)),
        tx_sequence_number=draw(st.just(1) | st.integers(1, 0xFFFFFFFF)),
        previous_tx_sequence_number=draw(st.just(0xFFFFFFFE) | st.integers(0, 0xFFFFFFFE)),
    )
    if header.connector:
        header.connector_qm_guid = guid(draw)
    return header


@made_once
def sids() -> st.SearchStrategy[str]:
    """Return a strategy for security identifiers as text, in each form of [MS-DTYP] 2.4.2.1."""
    authorities = st.sampled_from(["5", "1", "4294967295", "0x100000000000"])
    return st.builds(
        lambda authority, numbers: "-".join(["S-1", authority, *map(str, numbers)]),
        authorities,
        st.lists(U32, min_size=1, max_size=15),
    )


@made_once
@st.composite
def security_headers(draw: st.DrawFn) -> SecurityHeader:
    """Draw a SecurityHeader with at least one item. The sender may be a SID, the key a SIMPLEBLOB."""
    item = st.binary(max_size=40)
    header = SecurityHeader(
        flags=u16(draw),
        sender_id=draw(item | sids().map(sid_from_text)),
        sender_id_padding=draw(padding()),
        encryption_key=draw(item | simple_blobs().map(simple_blob.encode)),
        encryption_key_padding=draw(padding()),
        signature=draw(item),
        signature_padding=draw(padding()),
        sender_cert=draw(item),
        sender_cert_padding=draw(padding()),
        provider_info=draw(st.binary(min_size=1, max_size=40)),
        provider_info_padding=draw(padding()),
    )
    header.sender_id_type = draw(st.integers(1 if header.sender_id else 0, 2))
    return header


_CLASSES: Final = st.sampled_from(MessageClass).map(int) | U16
_CORRELATION: Final = st.binary(min_size=20, max_size=20)
_EXTENSION: Final = st.binary(max_size=30)
_BODY: Final = st.binary(max_size=40) | st.integers(1000, 2000).map(bytes)


@made_once
@st.composite
def message_properties_headers(draw: st.DrawFn) -> MessagePropertiesHeader:
    return MessagePropertiesHeader(
        flags=u8(draw),
        message_class=draw(_CLASSES),
        correlation_id=draw(_CORRELATION),
        body_type=u32(draw),
        application_tag=u32(draw),
        allocation_body_size=u32(draw),
        privacy_level=u32(draw),
        hash_algorithm=u32(draw),
        encryption_algorithm=u32(draw),
        label=draw(labels()),
        extension_data=draw(_EXTENSION),
        message_body=draw(_BODY),
        padding=draw(padding()),
    )


@made_once
@st.composite
def debug_headers(draw: st.DrawFn) -> DebugHeader:
    header = DebugHeader(flags=u16(draw), reserved=u16(draw))
    header.queue_type = draw(st.integers(0, 1))
    header.queue_identifier = guid(draw) if header.queue_type else None
    return header


@made_once
def soap_headers() -> st.SearchStrategy[SoapHeader]:
    text = st.none() | texts(30)
    return st.builds(SoapHeader, reserved=U16, header=text, reserved1=U16, body=text)


@made_once
def mqf_format_name_elements() -> st.SearchStrategy[MqfFormatNameElement]:
    element = MqfFormatNameElement
    return st.one_of(
        st.builds(element, st.just(PUBLIC_NAME), st.just(b""), guids()),
        st.builds(element, st.just(PRIVATE_NAME), padding(), private_queue_format_names()),
        st.builds(element, st.just(DIRECT_NAME), st.just(b""), texts(20)),
        st.builds(element, st.just(DISTRIBUTION_LIST_NAME), padding(), guids()),
    )


@made_once
def mqf_address_headers() -> st.SearchStrategy[MqfAddressHeader]:
    names = st.builds(FormatNameList, st.lists(mqf_format_name_elements(), max_size=4), st.binary(max_size=5))
    return st.builds(MqfAddressHeader, U16, names, padding())


@made_once
def multi_queue_format_headers() -> st.SearchStrategy[MultiQueueFormatHeader]:
    lists = mqf_address_headers()
    signature = st.builds(MqfSignatureHeader, U16, st.binary(max_size=30))
    return st.builds(MultiQueueFormatHeader, padding(), lists, lists, lists, signature)


@made_once
@st.composite
def session_headers(draw: st.DrawFn) -> SessionHeader:
    return SessionHeader(
        ack_sequence_number=u16(draw),
        recoverable_msg_ack_seq_number=u16(draw),
        recoverable_msg_ack_flags=u32(draw),
        user_msg_sequence_number=u16(draw),
        recoverable_msg_seq_number=u16(draw),
        window_size=u16(draw) or 1,
        reserved=u16(draw),
    )
