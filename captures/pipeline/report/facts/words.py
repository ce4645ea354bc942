"""Writes numbers, times and strangers' texts for people."""

from __future__ import annotations

import html
import shlex
from typing import Any, Final

from mqproto.base import words
from mqproto.base.words import counted
from mqproto.captures.decode.names import printable
from mqproto.captures.decode.views.words import duration, short
from mqproto.captures.pipeline.report.facts.facts import Sentence, Sequences
from mqproto.captures.pipeline.stages.messages.histories import Outcome
from mqproto.wire.classes import REFUSALS

TEXT_LIMIT: Final = 300
"""The maximum length of a text; a longer one is cut.

A label has at most 249 characters.  [MS-MQMQ] 2.2.19.3
"""


def harmless(text: str | None, limit: int | None = TEXT_LIMIT) -> str:
    """Return a text from a capture on one line, without characters that control a terminal or reverse the text."""
    shown = printable(text or "")
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


def escaped(text: str | None, limit: int | None = TEXT_LIMIT) -> str:
    """Return a text from a capture, escaped for use between HTML tags and in attributes."""
    return html.escape(harmless(text, limit), quote=True)


def took(before: str, ns: int, uncertainty_ns: int | None) -> Sentence:
    """Return words with a duration, as exact as the clocks allow.

    A duration below the clocks' uncertainty is given as an upper limit.

    Args:
        uncertainty_ns: 0 if one clock saw both events. None if the offset of the clocks comes from packets in one
            direction only; the fastest of these is assumed to have taken no time.
    """
    if uncertainty_ns is None:
        return Sentence(f"{before} at least", max(0, ns))
    if ns <= uncertainty_ns and uncertainty_ns:
        return Sentence(f"{before} at most", max(0, ns + uncertainty_ns))
    return Sentence(before, ns)


def sentence(said: Sentence) -> str:
    """Return a sentence, with its duration, as a terminal may show it."""
    took = "" if said.ns is None else f" {duration(said.ns)}"
    return harmless(f"{said.before}{took}{said.after}", limit=None)


def about(nanoseconds: int) -> str:
    """Return a duration as text, for values read from a `Spread`.

    It is rounded to two significant digits in nanoseconds, before the unit is chosen. So in minutes, hours or days it
    may have three digits.
    """
    digits = len(str(abs(nanoseconds)))
    return duration(round(nanoseconds, 2 - digits) if digits > 2 else nanoseconds)


def when(time_ns: int | None) -> str:
    """Return the date and the time in UTC, to the millisecond."""
    return "–" if time_ns is None else words.when(time_ns, 3)


def clock(time_ns: int, since_ns: int) -> str:
    """Return the time of day in UTC, with the date if it differs from the date of `since_ns`."""
    date = words.date(time_ns)
    return ("" if date == words.date(since_ns) else f"{date} ") + words.clock(time_ns, 3).removesuffix(".000")


def size(size_bytes: int) -> str:
    """Return a size such as `512 bytes` or `4.2 MB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= factor:
            return f"{short(size_bytes / factor)} {unit}"
    return f"{size_bytes} bytes"


def rate(count: int, span_ns: int) -> str:
    """Return a count as a rate per second, or per hour if it is below 0.01 per second.

    Return a dash if the count is below 2, or if all came at one moment.
    """
    if count < 2 or span_ns <= 0:
        return "–"
    each_s = count * 10**9 / span_ns
    return (
        f"{each_s:,.0f}/s"
        if each_s >= 10
        else f"{each_s:.2g}/s"
        if each_s >= 0.01
        else f"{each_s * 3600:.2g}/h"
    )


def gaps_text(sequences: Sequences) -> str:
    """Return the gaps in words, such as `3 gaps, all filled` or `3 gaps, 1 not seen to be filled`."""
    ended = f"{sequences.gaps_open:,} not seen to be" if sequences.gaps_open else "all"
    return f"{counted(sequences.gaps, 'gap')}, {ended} filled"


def decode_command(file: str, *, message: str | None = None, time_ns: int | None = None) -> str:
    """Return the shell command that shows a packet.

    It shows the packet's message from hop to hop, or else all packets of the same millisecond.
    """
    typed = ["mqproto", "decode", file]
    if message is not None:
        typed += ["--follow", message]
    elif time_ns is not None:
        typed += ["--since", words.when(time_ns, 3, "T"), "--until", words.when(time_ns + 10**6, 3, "T")]
    return shlex.join(typed)


def frame_filter(frame: int) -> str:
    """Return Wireshark's filter for one frame."""
    return f"frame.number == {frame}"


GOOD: Final = (str(Outcome.CONFIRMED), str(Outcome.REACHED), str(Outcome.ACKNOWLEDGED))
BAD: Final = (str(Outcome.REFUSED), str(Outcome.EXPIRED))
STUCK: Final = (str(Outcome.IN_FLIGHT),)
"""The outcomes that a report distinguishes; any other outcome means that the captures cannot tell."""

_REFUSALS: Final = {each.name: text for each, text in REFUSALS.items()}


def style(outcome: str) -> str:
    """Return the style in which an outcome is shown: `good`, `bad` or `open`."""
    return "good" if outcome in GOOD else "bad" if outcome in BAD else "open"


def total(outcomes: dict[str, int], texts: tuple[str, ...]) -> int:
    """Return the number of messages with one of these outcomes."""
    return sum(outcomes.get(text, 0) for text in texts)


def unknown(outcomes: dict[str, int]) -> int:
    """Return the number of messages with an unknown outcome."""
    return sum(outcomes.values()) - total(outcomes, GOOD + BAD + STUCK)


def why(row: dict[str, Any]) -> str:
    """Return a colon and the first refusal of a message in words; empty if there is none of a known class."""
    names = (row["final_class"], *(row["administration"] or ()))
    return next((f": {_REFUSALS[name]}" for name in names if name in _REFUSALS), "")
