"""Key pairs for tests, each made once: a new one of 2,048 bits takes a second on a busy machine."""

from __future__ import annotations

from functools import cache

from mqproto.security import KeyPair, new_key_pair


@cache
def own_key(bits: int = 1_024) -> KeyPair:
    return new_key_pair(bits)
