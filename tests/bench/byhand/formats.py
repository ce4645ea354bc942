"""What the reader and the writer by hand share: the fixed parts of the headers.  [MS-MQMQ] 2.2.19, 2.2.20"""

from __future__ import annotations

import struct
from typing import Final

HEAD: Final = struct.Struct("<BBHIII16s16sIIII")
"""BaseHeader and the fixed part of UserHeader."""
TRANSACTION: Final = struct.Struct("<IIIII")
PROPERTIES: Final = struct.Struct("<BBH20sIIIIIIII")
SECURITY: Final = struct.Struct("<HHHHII")
SESSION: Final = struct.Struct("<HHIHHHH")
DEBUG: Final = struct.Struct("<HH")
SOAP: Final = struct.Struct("<HHI")
PRIVATE: Final = struct.Struct("<16sI")
WORD: Final = struct.Struct("<I")
COUNT: Final = struct.Struct("<H")

SIGNATURE: Final = 0x524F494C
OTHER_NAMES: Final = 0x7 << 13 | 0x7 << 16
"""AdminType and ResponseType."""
