"""Makes a stranger's text safe to show in a refusal, a note, a table or a log line."""

from __future__ import annotations

from typing import Final

VALUE_LIMIT: Final = 200
"""The maximum number of characters to show of a text from somebody else; each takes up to 4 bytes of UTF-8."""
TEXT_LIMIT: Final = 600
"""The maximum number of characters in a whole refusal, or in one fact of a note, including any text from a stranger.
The longest format name of a queue, about 450 characters, fits.
"""


def shown(text: str, limit: int = VALUE_LIMIT) -> str:
    """Return a text on one line, with at most `limit` characters.

    Unprintable characters, including line breaks and terminal controls, are escaped. A text that is too long is cut,
    and then ends with its full length: `... (2,097,000 characters)`.
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
    """Return a text as made by `shown`, in quotes, for a value in a refusal."""
    return f"'{shown(text, VALUE_LIMIT - 2)}'"
