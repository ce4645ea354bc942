"""The two headers after a message that its queue manager keeps.  [MS-MQRR] 2.2.5.2, 2.2.5.4"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.testing import texts
from mqproto.wire.layouts.extension import (
    DeadLetterHeader,
    ExtensionHeader,
    dead_letter_header,
    extension_header,
)


@given(
    st.builds(
        ExtensionHeader,
        remaining_headers_size=st.integers(0, 0xFFFFFFFF),
        flags=st.integers(0, 0xFF),
        reserved=st.binary(min_size=3, max_size=3),
    )
)
def test_an_extension_header_has_12_bytes_and_survives_the_round_trip(header: ExtensionHeader) -> None:
    encoded = extension_header.encode(header)
    assert len(encoded) == 12
    assert extension_header.decode(encoded) == header


def test_its_flags_are_where_the_specification_has_them() -> None:
    header = ExtensionHeader()
    header.has_dead_letter = header.has_subqueue = header.has_extended_address = True
    assert header.flags == 0b10011


@given(texts(30))
def test_a_dead_letter_header_is_padded_with_zeros_and_says_its_size(path_name: str) -> None:
    encoded = dead_letter_header.encode(DeadLetterHeader(path_name))
    assert len(encoded) % 4 == 0
    assert int.from_bytes(encoded[:4], "little") == len(encoded)
    name = f"{path_name}\0".encode("utf-16-le", "surrogatepass")
    assert encoded[4:] == name + bytes(-len(name) % 4)
    assert dead_letter_header.decode(encoded) == DeadLetterHeader(path_name)


@pytest.mark.parametrize("encoded", ["", "04000000", "08000000 6100 6200", "07000000 6100 0000"])
def test_one_without_a_name_that_ends_or_with_another_size_is_refused(encoded: str) -> None:
    with pytest.raises(WireFormatError):
        dead_letter_header.decode(bytes.fromhex(encoded))
