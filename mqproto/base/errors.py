"""The errors that mqproto raises: some for wrong bytes, and some for a caller's mistakes."""

from __future__ import annotations

from mqproto.base.foreign import TEXT_LIMIT, shown


class MqprotoError(Exception):
    """The root of every exception that mqproto raises on purpose."""


class WireFormatError(MqprotoError, ValueError):
    """Bytes that do not form a packet of [MS-MQQB] 2.2.

    The text is one line and names all five facts, so that a reader can find the byte and the rule. Text from a peer is
    shortened and escaped by foreign.py.

    Args:
        field: the dotted path of the field in the record, such as `user.destination_queue.count`.
        offset: the offset of the field's first byte, counted from the first byte of the packet.
        value: the wrong value, or the number of bytes.
        limit: the allowed value in words: `at most 250`, `0x10`, `28 bytes`.
        section: the specification's section, as in `[MS-MQMQ] 2.2.19.3`.
    """

    def __init__(self, field: str, offset: int, value: object, limit: str, section: str) -> None:
        if not isinstance(value, int):
            value = shown(str(value))
        # Not by super(): from Python 3.14 on, that is the __init__ of another base of a class that has this one.
        ValueError.__init__(self, field, offset, value, limit, section)
        self.field = field
        self.offset = offset
        self.value = value
        self.limit = limit
        self.section = section

    def __str__(self) -> str:
        value = f"{self.value:#x}" if isinstance(self.value, int) and self.value > 9 else self.value
        return f"{self.field} at byte {self.offset} is {value}, must be {self.limit}  {self.section}"


class FormatNameError(MqprotoError, ValueError):
    """A text that does not name a queue.  [MS-MQMQ] 2.1

    The error says why, in one line of at most 600 characters.
    """

    def __init__(self, text: str) -> None:
        super().__init__(shown(text, TEXT_LIMIT))


class UsageError(MqprotoError, ValueError):
    """The caller asked for something impossible; the text says what to do instead."""


class QuotaExceeded(UsageError):  # noqa: N818
    """There is no room for the caller's messages; the same call will succeed once there is."""
