"""What the generated codec says of bytes, or of a record, that a layout refuses: no, and nothing else."""

from __future__ import annotations

import struct
from typing import Final


class Refused(Exception):  # noqa: N818  (an answer, which wire/codec.py turns into an error)
    """A value breaks a rule; the reference codec knows which."""


REFUSALS: Final = (Refused, struct.error, UnicodeError, TypeError, AttributeError, IndexError)
