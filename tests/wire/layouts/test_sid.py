"""Security identifiers: their text and their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.testing import sids
from mqproto.wire import decode_packet, encode_packet, sid_from_text, sid_text
from mqproto.wire.layouts import sid
from mqproto.wire.layouts.security import NO_SENDER, QUEUE_MANAGER, SID, SecurityHeader
from tests.examples import SENDER, a_security_header, a_user_message

ADMINISTRATOR = "S-1-5-21-3181267629-1039849782-3663111779-1000"
"""The SID in the frame of [MS-MQQB] 4.1.7."""
ADMINISTRATOR_BYTES = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (ADMINISTRATOR, ADMINISTRATOR_BYTES.hex()),
        ("S-1-1-0", "01 01 000000000001 00000000"),
        ("S-1-4294967295-1-4294967295", "01 02 0000ffffffff 01000000 ffffffff"),
        ("S-1-0x100000000000-7", "01 01 100000000000 07000000"),
        ("S-1-5" + 15 * "-9", "01 0f 000000000005" + 15 * "09000000"),
    ],
)
def test_a_sid_has_one_text_and_these_bytes(text: str, data: str) -> None:
    assert sid_from_text(text) == bytes.fromhex(data)
    assert sid_text(bytes.fromhex(data)) == text


@given(sids())
def test_what_a_sid_says_is_read_from_its_bytes(text: str) -> None:
    assert sid_text(sid_from_text(text)) == text


@given(st.binary(max_size=80) | st.binary(max_size=76).map(b"\1\2\0\0\0\0\0\5".__add__))
def test_bytes_are_no_sid_or_those_of_their_text(data: bytes) -> None:
    text = sid_text(data)
    assert not text or sid_from_text(text) == data


@pytest.mark.parametrize(
    "text",
    [
        "",
        "S-1-5",
        "S-2-5-7",
        "S-1-5-",
        "S-1-05-7",
        "S-1-5-4294967296",
        "S-1-5-07",
        "S-1-0x5-7",
        "S-1-5-21\n",
        "S-1-5" + 16 * "-9",
        "administrator",
        "S-1-5-٣",
    ],
)
def test_what_is_no_sid_is_refused_in_one_line_that_shows_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a SID: write .* as in S-1-5-21-") as refused:
        sid_from_text(text)
    assert str(refused.value).isprintable()


def test_bytes_that_say_another_revision_or_nobody_or_too_little_are_no_sid() -> None:
    for data in ("", "02 01 000000000005 07000000", "01 00 000000000005", "01 02 000000000005 07000000"):
        assert sid_text(bytes.fromhex(data)) == ""
    assert sid_text(ADMINISTRATOR_BYTES + b"\0") == ""
    before = sid._text_of.cache_info().currsize
    assert sid_text(bytes(0xFFFF)) == ""
    assert sid._text_of.cache_info().currsize == before, "what a stranger sends is not kept"
    assert sid_text(b"\1\x10\0\0\0\0\0\5" + bytes(64)) == ""


@pytest.mark.spec("[MS-MQMQ] 2.2.20.6")
def test_a_message_that_names_its_sender_has_the_security_header_of_frame_7() -> None:
    message = decode_packet(encode_packet(a_user_message(sender_id=ADMINISTRATOR_BYTES)))
    security = getattr(message, "security", None)
    assert security == SecurityHeader(flags=0x0001, sender_id=ADMINISTRATOR_BYTES)
    assert (security.sid, security.has_sid_alone, security.has_security_data) == (ADMINISTRATOR, True, False)


def test_a_sid_is_one_where_st_says_so_and_alone_where_nothing_is_signed_or_encrypted() -> None:
    assert SecurityHeader(flags=NO_SENDER, signature=b"signed").sid == ""
    assert SecurityHeader(flags=QUEUE_MANAGER, sender_id=SENDER).sid == ""
    assert SecurityHeader(flags=QUEUE_MANAGER, sender_id=ADMINISTRATOR_BYTES).sid == ""
    assert SecurityHeader(flags=SID, sender_id=b"no SID").sid == ""
    assert not SecurityHeader(flags=SID, sender_id=b"no SID").has_sid_alone
    for others in (
        {"signature": b"s"},
        {"sender_cert": b"c"},
        {"encryption_key": b"k"},
        {"provider_info": b"p"},
    ):
        header = a_security_header(
            **{"flags": SID, "sender_id": ADMINISTRATOR_BYTES, "signature": b"", "sender_cert": b""} | others
        )
        assert (header.sid, header.has_sid_alone) == (ADMINISTRATOR, False)
    encrypted = SecurityHeader(flags=SID | SecurityHeader.body_encrypted.mask, sender_id=ADMINISTRATOR_BYTES)
    assert not encrypted.has_sid_alone
