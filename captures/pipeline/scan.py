"""Where the records of a range stand, and the proof that all ranges together hold every record of the file."""

from __future__ import annotations

from dataclasses import dataclass

from captures.frame import CaptureError
from captures.pcapng import Section
from captures.pipeline.files import CaptureFile


@dataclass(frozen=True, slots=True)
class Reading:
    """A range whose beginning is proved: all that a task has to know to read exactly its frames.

    start, end: of its first record, and of the one behind its last, in the (unpacked) file.
    first_number: of its first frame, counted from 1 over the file.
    section: what is known at `start`: byte order and interfaces.
    damage: what ends the file at `end`, if it is damaged there. No range follows.
    """

    file: CaptureFile
    start: int
    end: int
    first_number: int
    frame_count: int
    section: Section
    damage: CaptureError | None = None
