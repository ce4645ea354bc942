"""Accidents that may happen to a packet, from seeds: this makes thousands in a second, where hypothesis makes a few
dozen.
"""

from __future__ import annotations

import random


def accidents(rng: random.Random, data: bytes) -> bytes:
    """Draw a packet with a few bytes overwritten, cut off or inserted; in about half of the cases, its PacketSize is
    right.
    """
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) or 1)
        match rng.randrange(6):
            case 0:
                del changed[at:]
            case 1:
                changed[at:at] = rng.randbytes(rng.randint(1, 6))
            case 2:
                changed[at : at + 4] = rng.choice(
                    [b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\1\0\0\x80"]
                )
            case _ if changed:
                changed[at] = rng.randrange(256)
    if rng.random() < 0.5 and len(changed) >= 16:
        size = len(changed) - (16 if changed[2] & 0x18 == 0x10 else 0)
        changed[8:12] = max(size, 0).to_bytes(4, "little")
    return bytes(changed)
