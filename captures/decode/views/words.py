"""Numbers in a form that is easy to read."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (
    (1, "ns"),
    (10**3, "µs"),
    (10**6, "ms"),
    (10**9, "s"),
    (60 * 10**9, "min"),
    (3_600 * 10**9, "h"),
)
DAY_NS: Final = 86_400 * 10**9


def duration(nanoseconds: int | None) -> str:
    """Return a duration in the largest unit that fits, such as `4.2 ms`, `17 s` or `3.5 days`."""
    if nanoseconds is None:
        return "–"
    if nanoseconds < 0:
        return f"−{duration(-nanoseconds)}"
    if nanoseconds >= 2 * DAY_NS:
        return f"{short(nanoseconds / DAY_NS)} days"
    size, unit = next((each for each in reversed(_UNITS) if nanoseconds >= each[0]), _UNITS[0])
    return f"{short(nanoseconds / size)} {unit}"


def share(part: int, whole: int) -> str:
    """Return a share as text, such as `12 %`.

    `0 %` always means none, and `100 %` always means all.
    """
    if not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "< 1 %"
    return "> 99 %" if 99 < percent < 100 else f"{percent:.0f} %"


def short(value: float) -> str:
    """Return a number with three significant digits, or with all digits before the decimal point if there are more."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
