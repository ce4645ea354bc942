"""Words for people, and those that programs read, each with what it means."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Word(StrEnum):
    """One of a set of words: `NAME = "word", "what it means"`."""

    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


def counted(count: int, what: str) -> str:
    """`1 packet`, `2 packets`."""
    return f"{count:,} {what}" + ("s" if count != 1 else "")
