"""Messages as they are kept: each is followed by the name of a dead-letter queue, which no session carries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from mqproto.messages.drafts import as_sent, headers_behind, is_letter, path_name_in
from mqproto.testing import texts, user_messages
from mqproto.wire import MessageClass, UserMessage, decode_message, encode_packet, with_message_class
from tests.examples import a_full_message, a_user_message

FAILED = ".\\private$\\failed-orders"


@pytest.mark.spec("[MS-MQQB] 3.1.5.7")
def test_behind_a_message_stand_the_two_headers_as_the_specification_has_them() -> None:
    assert headers_behind(".\\a") == bytes.fromhex("0c000000 0c000000 01 000000 0c000000 2e00 5c00 6100 0000")


@given(user_messages(), texts(40), st.integers(0, 3))
def test_what_is_kept_is_a_message_and_what_is_sent_is_it_without_the_name(
    message: UserMessage, path_name: str, padding_bytes: int
) -> None:
    """The signature of a list of destinations is followed by padding, which is sent."""
    padding = bytes(padding_bytes)
    message.session, message.base.session_header, message.trailing = None, False, padding
    packet = encode_packet(message)
    kept = encode_packet(replace(message, trailing=padding + headers_behind(path_name)))
    assert path_name_in(decode_message(kept).trailing) == path_name
    assert as_sent(kept) == packet
    assert as_sent(packet) is packet


@given(st.binary(max_size=40) | texts(9).map(headers_behind), st.data())
def test_any_other_bytes_behind_a_message_name_no_queue_and_are_no_error(
    trailing: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(trailing)))
    path_name = path_name_in(trailing[:cut])
    assert not path_name or headers_behind(path_name) == trailing[cut % 4 : cut]


@pytest.mark.parametrize("flags", [0, 2, 16])
def test_a_header_that_announces_no_dead_letter_queue_names_none(flags: int) -> None:
    behind = bytearray(headers_behind(FAILED))
    behind[8] = flags
    assert path_name_in(bytes(behind)) == ""


@pytest.mark.parametrize("message", [a_user_message(), a_full_message()])
@pytest.mark.parametrize(
    ("journal_negative", "message_class", "behind", "expected"),
    [
        (True, MessageClass.NACK_RECEIVE_TIMEOUT, headers_behind(FAILED), True),
        (True, MessageClass.NACK_BAD_DST_Q, headers_behind(FAILED), True),
        (True, MessageClass.NORMAL, headers_behind(FAILED), False),
        (True, MessageClass.ACK_RECEIVE, headers_behind(FAILED), False),
        (False, MessageClass.NACK_BAD_DST_Q, headers_behind(FAILED), False),
        (True, MessageClass.NACK_BAD_DST_Q, b"", False),
    ],
)
def test_a_letter_has_failed_and_asked_for_it_and_names_a_queue(
    message: UserMessage, journal_negative: bool, message_class: int, behind: bytes, expected: bool
) -> None:
    message = replace(message, session=None, trailing=behind)
    message.base.session_header, message.user.journal_negative = False, journal_negative
    assert is_letter(with_message_class(encode_packet(message), message_class)) is expected
