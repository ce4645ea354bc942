"""The peer's codec, applied to the frames of [MS-MQQB] 4.1 and to its own packets."""

from __future__ import annotations

import pytest

from tests import frames

from .peer.codec import Codec
from .peer.packets import (
    AI,
    NA,
    PA,
    SID,
    ConnectionParameters,
    EstablishConnection,
    MalformedError,
    Security,
    SessionAck,
    SessionHeader,
    Transaction,
    TxSequenceId,
    UserMessage,
)
from .peer.switches import Switches
from .wire import A, B

CODEC = Codec()
EVERYTHING = UserMessage(
    A,
    B,
    f"PRIVATE={B}\\0000000a",
    b"body",
    "label",
    message_id=7,
    recoverable=True,
    acknowledge=PA | NA,
    admin=f"PRIVATE={A}\\00000003",
    response=r"DIRECT=OS:shop\private$\replies",
    dead_letter=True,
    journal=True,
    transaction=Transaction(TxSequenceId(5, 6), 8, 7, identifier=9),
    session=SessionHeader(1, 2, 3, 4, 5),
    allocated=4,
    extension=b"x",
    connector=B.bytes,
    security=Security(bytes(12), AI | SID, b"key!", b"signature", b"certificate", b"provider"),
    list_signature=b"another",
    destinations=[r"DIRECT=TCP:10.0.0.2\orders", f"PRIVATE={B}\\0000000a"],
)


def test_the_printed_frames_are_read_and_built_again_byte_for_byte() -> None:
    three, four, five, _, seven, eight = (CODEC.unpack(frame) for frame in frames.SESSION_FRAMES)
    assert isinstance(three, EstablishConnection)
    assert isinstance(four, EstablishConnection)
    assert (str(three.client), three.server) == (
        "557358d1-9150-9595-4997-b6e611ea26c6",
        CODEC.read_guid(frames.FRAME_2[8:]),
    )
    assert four.client == CODEC.read_guid(bytes.fromhex("0523741F5EBE7741BC77C4DD7719E474"))
    assert five == ConnectionParameters(1496, 120_000, 64)
    assert eight == SessionAck(SessionHeader(1, 0, 0, 0, 0, 64))
    assert isinstance(seven, UserMessage)
    assert (seven.destination, seven.label, len(seven.body)) == (
        r"DIRECT=OS:a04bm02\q",
        "mqsender label",
        2000,
    )
    for printed in frames.SESSION_FRAMES:
        built = CODEC.pack(CODEC.unpack(printed))
        assert built[2:] == printed[2:], "all but Reserved, which may be anything"


def test_the_printed_pings_are_read() -> None:
    request, response = CODEC.read_ping(frames.FRAME_1), CODEC.read_ping(frames.FRAME_2)
    assert request
    assert response
    assert (request.cookie, request.rc, request.refused) == (4, True, False)
    assert (response.cookie, response.rc, response.refused) == (4, True, False)


@pytest.mark.parametrize(
    "switches", [Switches(), Switches(guids_reversed=True), Switches(reserved_bits=True, junk=True)]
)
def test_a_message_with_all_headers_is_read_as_it_was_built(switches: Switches) -> None:
    codec = Codec(switches)
    data = codec.pack(EVERYTHING)
    assert codec.unpack(data) == EVERYTHING
    assert codec.size(data[:16]) == len(data)


@pytest.mark.parametrize("size", range(16, 300, 7))
def test_a_message_that_ends_too_early_is_malformed(size: int) -> None:
    with pytest.raises(MalformedError):
        CODEC.unpack(CODEC.pack(EVERYTHING)[:size])
