"""The digest of a message: it is the same after an intermediate node's changes, but not after any other."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from mqproto.captures.decode.digest import HEAD_MASK, digest_of
from mqproto.testing import session_headers, user_messages
from mqproto.wire import (
    SessionHeader,
    UserMessage,
    encode_packet,
    with_session_header,
    without_session_header,
)
from tests.examples import a_user_message


@settings(max_examples=25)
@given(user_messages(), session_headers(), st.integers(0, 29))
def test_the_hop_count_and_the_session_header_change_nothing(
    message: UserMessage, session: SessionHeader, hop_count: int
) -> None:
    before = encode_packet(message)
    message.user.hop_count = hop_count
    after = encode_packet(message)
    alone = without_session_header(after)
    assert {digest_of(each) for each in (before, after, alone, with_session_header(alone, session))} == {
        digest_of(before)
    }


@settings(max_examples=25)
@given(user_messages(), st.data())
def test_any_other_bit_changes_it(message: UserMessage, data: st.DataObject) -> None:
    packet = bytearray(without_session_header(encode_packet(message)))
    before = digest_of(bytes(packet))
    masks = HEAD_MASK.ljust(len(packet), b"\xff")
    place = data.draw(st.integers(0, len(packet) - 1))
    packet[place] ^= data.draw(
        st.sampled_from([bit for bit in range(8) if masks[place] >> bit & 1]).map((1).__lshift__)
    )
    assert digest_of(bytes(packet)) != before


def test_it_is_the_same_in_every_process_and_version_as_tables_hold_it() -> None:
    assert digest_of(encode_packet(a_user_message())) == -3707725506702479443
