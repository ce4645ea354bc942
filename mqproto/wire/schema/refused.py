"""The errors of the generated codec. They say only that bytes or a record are refused."""

from __future__ import annotations

import struct
from typing import Final


class Refused(Exception):  # noqa: N818  (an answer, which wire/codec.py turns into an error)
    """A value breaks a rule. Only the reference codec can say which rule."""


REFUSALS: Final = (Refused, struct.error, UnicodeError, TypeError, AttributeError, IndexError)
