"""Texts for people and programs: enumerations of words, counts, dates and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final, Self

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ERA_YEARS: Final = 400
ERA_S: Final = 146_097 * 86_400
"""The number of seconds in 400 years, after which the calendar repeats itself."""


class Word(StrEnum):
    """A member of a set of words, which is defined as `NAME = "word", "what it means"`."""

    meaning: str

    def __new__(cls, word: str, meaning: str = "") -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.meaning = meaning
        return member


def counted(count: int, what: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1: `1 packet`, `2 packets`."""
    return f"{count:,} {what}" + ("s" if count != 1 else "")


@lru_cache(maxsize=256)
def _told(second: int) -> tuple[str, str]:
    """Return the date and the time of day, in UTC, of a Unix time, which may be before 1970.

    A year of five digits, or before the year 0, has a sign.
    """
    eras, rest = divmod(second, ERA_S)
    moment = _EPOCH + timedelta(seconds=rest)
    year = moment.year + ERA_YEARS * eras
    shown = f"{year:04d}" if 0 <= year <= 9_999 else f"{year:+05d}"
    return f"{shown}-{moment:%m-%d}", f"{moment:%H:%M:%S}"


def date(time_ns: int) -> str:
    """Return the date, in UTC, of any time that a capture can have."""
    return _told(time_ns // 10**9)[0]


def clock(time_ns: int, digits: int = 6) -> str:
    """Return the time of day, in UTC, with `digits` digits after the decimal point."""
    second, rest_ns = divmod(time_ns, 10**9)
    return f"{_told(second)[1]}.{rest_ns // 10 ** (9 - digits):0{digits}d}"


def when(time_ns: int, digits: int = 6, parted: str = " ") -> str:
    """Return the date and the time of day, in UTC."""
    return f"{date(time_ns)}{parted}{clock(time_ns, digits)}"


def brief(seconds: float | None) -> str:
    """Return a duration, usually a short one, as text: `0.3 ms`, `42 ms`, `1.5 s`; an empty text for None."""
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{seconds * 1_000:.1f} ms" if seconds < 0.00995 else f"{seconds * 1_000:.0f} ms"
    return duration(seconds)


def duration(seconds: float) -> str:
    """Return a duration as text, in the form that people use.

    Examples are `0.4 s`, `42 s`, `3 min 5 s`, `2 h 4 min` and `3 d 4 h`.
    """
    if 0.05 <= seconds < 9.95 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    whole = max(int(seconds + 0.05), 0)
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3_600),
        ("h", 3_600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + f" {rest} {smaller}" * bool(rest)
    return f"{whole} s"
