"""Encrypted and signed messages as a target of the fuzzer. A queue manager with keys opens or refuses each of them.

The messages were made once and are stored here: padding and certificates differ each time they are made, but runs must
be repeatable. The key to the messages is here, too; it is not secret and protects nothing.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Hashable
from functools import cache
from typing import TYPE_CHECKING, Final

from mqproto.base.configuration import Settings
from mqproto.base.errors import WireFormatError
from mqproto.base.moment import Moment
from mqproto.simulator.fuzz.parser.judges import Broken
from mqproto.turn.guard import WEAK_CIPHERS, ProtectionError
from mqproto.wire import MessageClass, UserMessage, decode_packet

if TYPE_CHECKING:
    from mqproto.security import KeyGuard

QUESTION: Final = "is opened and verified as it was made, or refused by its class"
PRIMES: Final = (
    0xB7D194FF616978A0E016B944A354F2EF9614AC84513D78BA8E230059322C4AC5,
    0xDA30C516F2957B54F3D7361AD1E3C00C1C34D19A31EF5F6A981F2DA44D8DAC97,
)
LATER: Final = Moment(uptime_ms=0, utc_s=1_800_000_000)
CLASSES: Final = (
    MessageClass.NACK_BAD_ENCRYPTION,
    MessageClass.NACK_BAD_SIGNATURE,
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER,
)
PACKETS: Final = """
eNr7wcDAIMDAzODj6R/0A8j+DwRpRfm5CiUZqQpppVVVqUV6JfkKiXmVSfkplSDRolSQGoaPwamsQPUMPBoMgkDqARD7MCAAIxPQ3DQgYwkDA6fdcx79
KPutKq2Rkjc2zRWSrBe1O77FV8xJmUk0ov+JpZ/28t2fl7Nllm147WH5J3rZgW3P/h+dN0+3LN+uch3T9jgGDga8QACKQe7ha4DaCwSJDAoMOUAyiSEV
SDMw7PPc/2+Ox9e9F9OPLTcuKbj4g4Z+54f6fXH4eeOytpiN+VJuhU9PBjyWYVPxycnc7SHzseQBi4NzuLBhOO/swpyOyToJB1zvJBtYVd2K3rKYfS3/
59sb7Zlip5Hqd34cfmco2RJ0/bRH/N3JixxiEp0X0dLvfFC//31SkrHW90Ul00OefTHfhTSW7So9acUeLhjdNPVfy2RxXs8Hq+U6nyVPlOWd3nXweGuX
S+bBhKj0v5NvBx08W+PXzESq3/lw+P1KsKJ04ILMK88fWOqbfbA/T0u/M0H9vjV1X3CIQLIK30/FOE5NOWFtYzflR/wVkxkmnD7+wX/mI4eIY38uhpVZ
1tw19FLU0j5r1CJeLs1WsasswURUSL+zhVi/M0P9zoTD76tD38kcXZ+uID5TmFlgx0VVWvqdMQPi9xWZnFOW7r9wov5x06qgystnLVh/cbvrpIpsWJIf
sdvnz5Ob74v6HpRvmzBlCtcaDe3Hyt4qm0UY5nm/Kv96asY2QQkHQn7nhWKY38H2YvE7j3XBjBKz7xt8d3sncQH59Ij3Y8aicpkfhXe9yV3Af9MjYJFi
o96C+iuJvCnyD19yFv4WXL1ylbe6o2drC5NBUHFEwosQbe34CTX7UxivNaQ9Y230IDbeGQnEe9712dkhsow7lvws3HL4EuNZesS7xy5Ov53VhgzBkZk/
7719+WryYtNtOS1tl+bXGT//t0Eq4/uFs1Y5M6d63xMMW7/w5K0+a+trpom+XG49k0/kMD6500lsvDMSiPdJmy1un3md5GT33KmLBcg3YUL4HcQm1+8H
wLY5MLgzQuzN+WfSE+Rod1V62cYLz7OXc+x3ef6KMWCzafOJa1Ys8VeadjQ0cOsYrjrzLYLRb+Y5jtn8QY4sDgqFhwJZtEqdOiMnGzQxOhs0vlvAzMTI
xCTCMcPY2az3XdDs9PrGXFMlq4S7xWkGvGycWm0ebd95GRm5WRkM+A15DbjZmENZmHlYQA43UBDnNTI2NDQ0MTIyNDYyiJLgNzIEChgASYgAppYYZEMZ
WRmYvRkMPJgcGeasrt2kteHO6d88/+bce8SnfnrS+1eZC/lfJHxsPRH8eHoez2yXG68WVNy+kjDt7r/VRrEnTVLLDn3ZahpcMS/j5N0yYyZmRgbGxQoG
cgY8QOtkhRkZ/7MwGTAY8IF4/CAeCzMT2wE0LzE7MpR0abOsdFp6VyTjweyZe52yV3o96/3afYbvyJrFd9/9U45f/Ie7nXNtkcC5WdnKYY5KKnbG1v/m
qzfOf1/42DtN62M4A7HpBhyVeNoHiQrFqclFqSUKoGRAw3Rzz7Bq7se9/qsDDGa+8fh7odd+6W7L5ZNzdi1LPNjd3O919YGN9pYCJeeQf9b+Ru8Uni5W
5/nwVbWrNlxPRONzVbBywmi6oX+6YRkE6aYl7/ytiIkneON4f0vWil8wX7s32a806Nq6UOXJ8mHpN7wtV2x7d6LBa6UMn87721ZHP2geFHbbfq++UPb5
U8WXTo1Go+mG/umGmYR0cwQp3RwhK92sQEo3DPB0Mxrvg7ueiQHiFFAZA27boMcwE4aIILjt688QzGDFkM+QBzQ1hqEQKMYG6uahqVUAip2Atpmw6eEB
Yh1oOoljBJU2QD8Eijh+qyyUlVteobB2w/vlW8/Kuwq9qt72L+m5eaVstE7r4V020svjTpv2XLt/Zj1Hivzra2Lce3yLnlT9e9sfb8vagJSOG5gobWsi
yj/kMYUrZ06fZg2oU768O8M5dll91LZ1H/wCZHozw58v2zf7yxT2/WWrYg9J/fGKKLUO3lO+5v/DIOE473gZuS2SvCduXvYTH227DY08hdzHx5en9HOz
i3wXL5xp9WLib9fYFgMBZkQaBLHJLUth/R3kNAjr71iU55iffDdfq2jakgoTg045L27/zOmVl81tPhoUOu3Lizyify1/aeDalTbBm+Qfvte4saL3X9fd
OftkHiyvFVztui9+NA3Rt1xmhqYhXP3GpvoPF5NrX4SuCV/1aeEwLJcBk5lw4Q==
"""
"""One packet for each cipher, for each kind of signature, with a list of destinations, and with both kinds of
protection. Each packet is preceded by its size, and all are compressed together.
"""


def seeds() -> list[bytes]:
    """Return the packets."""
    data = zlib.decompress(base64.b64decode(PACKETS))
    found = []
    while data:
        size = int.from_bytes(data[:4], "little")
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def ask(data: bytes) -> Hashable:
    """Check that a packet with a SecurityHeader is opened or refused, and that an unsigned packet never counts as
    signed.
    """
    try:
        message = decode_packet(data)
    except WireFormatError:
        return ("no packet",)
    if not isinstance(message, UserMessage) or message.security is None:
        return ("nothing to open",)
    try:
        opened = guard().opened(message, WEAK_CIPHERS, LATER)
    except ProtectionError as error:
        if error.message_class not in CLASSES or not error.reason.isprintable():
            raise Broken("refusal", f"{error.message_class!r}: {error.reason!r}") from None
        return error.message_class, "".join(letter for letter in error.reason[:60] if letter.isalpha())
    security = opened.security
    assert security is not None, "it had one"
    if security.body_encrypted:
        raise Broken("opening", "its body is said to be encrypted still")
    if security.authenticated and _signed_part(opened) not in _all_signed():
        raise Broken("proof", "it is taken for signed, and nobody has signed this")
    return message.security.body_encrypted, security.authenticated, security.signature_type


@cache
def guard() -> KeyGuard:
    """Return the guard of a queue manager that has the key."""
    from mqproto.security import PROVIDERS, KeyGuard, KeyPair, Keys

    own = KeyPair.from_primes(*PRIMES)
    return KeyGuard(Keys(own={provider.word: (own,) for provider in PROVIDERS}), Settings())


@cache
def _all_signed() -> frozenset[tuple[bytes, bytes, str | None]]:
    """Return, for each signed message, the part that an application would trust."""
    found = set()
    for packet in seeds():
        message = decode_packet(packet)
        assert isinstance(message, UserMessage), "all seeds are"
        found.add(_signed_part(guard().opened(message, WEAK_CIPHERS, LATER)))
    return frozenset(found)


def _signed_part(message: UserMessage) -> tuple[bytes, bytes, str | None]:
    properties = message.properties
    return properties.message_body, properties.correlation_id, properties.label
