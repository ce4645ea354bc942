"""The eight frames that are printed in [MS-MQQB] 4.1, taken from their hex dumps; the text next to these has some
errors.
"""

from __future__ import annotations

from typing import Final

FRAME_1: Final = bytes.fromhex("01 7D 48 55 04 00 00 00 D1 58 73 55 50 91 95 95 49 97 B6 E6 11 EA 26 C6")

FRAME_2: Final = bytes.fromhex("95 B2 48 55 04 00 00 00 07 89 CD 43 4C 39 11 8F 44 45 90 78 90 9E A0 FC")

FRAME_3: Final = (
    bytes.fromhex(
        "10 C0 0B 00 4C 49 4F 52 3C 02 00 00 FF FF FF FF"
        "00 00 02 00 D1 58 73 55 50 91 95 95 49 97 B6 E6"
        "11 EA 26 C6 07 89 CD 43 4C 39 11 8F 44 45 90 78"
        "90 9E A0 FC 4E CA DE 1D 10 03 00 00"
    )
    + b"\x5a" * 512
)

FRAME_4: Final = (
    bytes.fromhex(
        "10 5A 0B 00 4C 49 4F 52 3C 02 00 00 FF FF FF FF"
        "00 00 02 00 05 23 74 1F 5E BE 77 41 BC 77 C4 DD"
        "77 19 E4 74 EB 6A 3A 3C 67 F5 43 41 87 D3 85 CF"
        "4D 68 CE B4 4E CA DE 1D 10 03 00 00"
    )
    + b"\x5a" * 512
)

FRAME_5: Final = bytes.fromhex(
    "10 C0 0B 00 4C 49 4F 52 20 00 00 00 FF FF FF FF00 00 03 00 D8 05 00 00 C0 D4 01 00 00 00 40 00"
)

FRAME_6: Final = FRAME_5
"""The dump of frame 6 equals that of frame 5, although the text next to it says WindowSize 32."""

# The dump ends after 1,650 bytes, in the middle of the body. By its own PacketSize (2224) and MessageSize (2000) the
# rest is more of the same text and two bytes of padding, which the dump does not show.
FRAME_7: Final = (
    bytes.fromhex(
        "10 00 03 00 4C 49 4F 52 B0 08 00 00 00 46 05 00"
        "D1 58 73 55 50 91 95 95 49 97 B6 E6 11 EA 26 C6"
        "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
        "FF FF FF FF 4C 49 4F 52 EE 08 00 00 00 1C 28 00"
        "1A 00 4F 00 53 00 3A 00 61 00 30 00 34 00 62 00"
        "6D 00 30 00 32 00 5C 00 71 00 00 00 01 00 1C 00"
        "00 00 00 00 00 00 00 00 00 00 00 00 01 05 00 00"
        "00 00 00 05 15 00 00 00 AD 4A 9E BD 36 D9 FA 3D"
        "63 A6 56 DA E8 03 00 00 0F 0F 00 00 00 00 00 00"
        "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
        "08 00 00 00 00 00 00 00 D0 07 00 00 D0 07 00 00"
        "00 00 00 00 04 80 00 00 01 68 00 00 00 00 00 00"
        "6D 00 71 00 73 00 65 00 6E 00 64 00 65 00 72 00"
        "20 00 6C 00 61 00 62 00 65 00 6C 00 00 00"
    )
    + b"a\0" * 1000
    + b"\0\0"
)

FRAME_8: Final = bytes.fromhex(
    "10 CD 1B 00 4C 49 4F 52 24 00 00 00 FF FF FF FF"
    "00 00 01 00 01 00 00 00 00 00 00 00 00 00 00 00"
    "40 00 00 00"
)

SESSION_FRAMES: Final = (FRAME_3, FRAME_4, FRAME_5, FRAME_6, FRAME_7, FRAME_8)
"""The frames of a session; the two frames before it are datagrams."""
