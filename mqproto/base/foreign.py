"""A stranger's text, as it may stand in a refusal, a note, a table or a line of a log."""

from __future__ import annotations

from typing import Final

VALUE_LIMIT: Final = 200
"""How many characters stand of a text that somebody else has written, at most; each takes up to 4 bytes of UTF-8."""
TEXT_LIMIT: Final = 600
"""How many characters a whole refusal or a fact of a note has: our own words with such a text among them. The longest
format name of a queue, some 450, fits whole."""


def shown(text: str, limit: int = VALUE_LIMIT) -> str:
    """The text on one line and not for ever, in `limit` characters at most.

    What cannot be printed, line breaks and what a terminal would obey among it, is escaped. What does not fit is left
    out, and its end says how long it was: `... (2,097,000 characters)`.
    """
    if len(text) <= limit and text.isprintable():
        return text
    # An escape is longer than what it stands for, so this is enough of the text.
    escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:limit])
    if len(text) <= limit and len(escaped) <= limit:
        return escaped
    end = f"... ({len(text):,} characters)"
    return escaped[: limit - len(end)] + end


def quoted(text: str) -> str:
    """The same in quotes, as a value in a refusal."""
    return f"'{shown(text, VALUE_LIMIT - 2)}'"
