"""Error texts: one line each."""

from __future__ import annotations

import pytest

from mqproto.base.errors import WireFormatError


@pytest.mark.parametrize(
    ("value", "told"), [(0, "0"), (9, "9"), (10, "0xa"), (0x524F494C, "0x524f494c"), ("23 bytes", "23 bytes")]
)
def test_a_number_that_has_more_than_one_digit_is_told_as_it_stands_in_a_dump(
    value: object, told: str
) -> None:
    error = WireFormatError("base.signature", 8, value, "0x10", "[MS-MQMQ] 2.2.19.1")
    assert str(error) == f"base.signature at byte 8 is {told}, must be 0x10  [MS-MQMQ] 2.2.19.1"
