"""Transactional sequences end to end: gaps on each hop, OrderAcks and FinalAcks.  [MS-MQQB] 3.1.1.6.2, 3.1.5.8.6

`progress.py` tracks the numbers that crossed each hop; `sequence.py` holds the state of one sequence; `claims.py`
judges whether an acknowledgment can be right; and `checker.py` follows all sequences of a capture.
"""

from __future__ import annotations

from mqproto.captures.decode.sequences.checker import (
    NUMBER_LIMIT,
    SEQUENCE_LIMIT,
    SequenceChecker,
    SequenceView,
)
from mqproto.captures.decode.sequences.progress import GAP_LIMIT, Gap, HopProgress, numbers, shown
from mqproto.captures.decode.sequences.sequence import HOP_LIMIT, Claim, Said, Sequence, SequenceKey

__all__ = [
    "GAP_LIMIT",
    "HOP_LIMIT",
    "NUMBER_LIMIT",
    "SEQUENCE_LIMIT",
    "Claim",
    "Gap",
    "HopProgress",
    "Said",
    "Sequence",
    "SequenceChecker",
    "SequenceKey",
    "SequenceView",
    "numbers",
    "shown",
]
