"""Key pairs for tests, each made once: a new one of 2,048 bits takes a second on a busy machine; and all ciphers."""

from __future__ import annotations

from functools import cache
from typing import Final

from mqproto.security import PROVIDERS, KeyPair, new_key_pair

CIPHERS: Final = [(provider, number) for provider in PROVIDERS for number in provider.algorithms]


@cache
def own_key(bits: int = 1_024) -> KeyPair:
    return new_key_pair(bits)
