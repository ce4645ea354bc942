"""Selects packets by kind, node, queue, sequence, connection and time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.base.words import ERA_S, ERA_YEARS
from mqproto.captures.decode.facts import MessageKey
from mqproto.captures.decode.names import Names, destination_format_name
from mqproto.captures.decode.sequences import shown
from mqproto.captures.decode.sight import Kind, Sight
from mqproto.captures.net.turns import Turn
from mqproto.wire import Guid, guid_from_text

NANOSECONDS: Final = 1_000_000_000
GROUPS: Final = {
    "usermessage": frozenset(Kind)
    - {Kind.PING, Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS, Kind.SESSION_ACK}
    - {Kind.MALFORMED, Kind.ENCRYPTED, Kind.CUT},
    "internal": frozenset({Kind.ESTABLISH_CONNECTION, Kind.CONNECTION_PARAMETERS, Kind.SESSION_ACK}),
}
"""The kinds of packets that a single word stands for, keyed by the word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The properties of the wanted packets; None or an empty value accepts any.

    kinds: the kinds that are accepted.
    node: part of the name or address of one of the two ends, ignoring case.
    queue: part of the destination's name or format name, ignoring case.
    sequence: the TxSequenceID of a message, OrderAck or FinalAck, given as its ordinal, or as its time stamp and
        ordinal.
    connection: the number of the connection.
    after_ns, before_ns: the first and the last moment that are accepted, in nanoseconds since 1970.
    """

    kinds: frozenset[Kind] = frozenset()
    node: str = ""
    queue: str = ""
    sequence: str = ""
    connection: int | None = None
    after_ns: int | None = None
    before_ns: int | None = None

    @property
    def takes_all(self) -> bool:
        """Whether every packet is wanted."""
        return self == ALL

    def takes(self, sight: Sight, names: Names) -> bool:
        """Whether a packet is wanted."""
        seen = sight.seen
        return (
            (not self.kinds or sight.kind in self.kinds)
            and (self.connection is None or self.connection == seen.connection)
            and (self.after_ns is None or seen.time_ns >= self.after_ns)
            and (self.before_ns is None or seen.time_ns <= self.before_ns)
            and (not self.node or self._has_node(sight))
            and (not self.queue or self._has_queue(sight, names))
            and (not self.sequence or self._has_sequence(sight))
        )

    def takes_turn(self, turn: Turn, names: Names) -> bool:
        """Whether to show the beginning or end of a connection; false if the selection depends on the content of
        packets.
        """
        wanted = self.node.casefold()
        ends = (turn.source, turn.destination)
        named = [text.casefold() for end in ends for text in (str(end), names.endpoint(end))]
        return (
            not (self.kinds or self.queue or self.sequence)
            and self.connection in (None, turn.connection)
            and (self.after_ns is None or turn.time_ns >= self.after_ns)
            and (self.before_ns is None or turn.time_ns <= self.before_ns)
            and (not wanted or any(wanted in name for name in named))
        )

    def _has_node(self, sight: Sight) -> bool:
        wanted = self.node.casefold()
        ends = (sight.source, sight.destination, str(sight.seen.source), str(sight.seen.destination))
        return any(wanted in end.casefold() for end in ends)

    def _has_queue(self, sight: Sight, names: Names) -> bool:
        if sight.message is None:
            return False
        user = sight.message.user
        wanted = self.queue.casefold()
        return (
            wanted in names.destination(user).casefold()
            or wanted in (destination_format_name(user) or "").casefold()
        )

    def _has_sequence(self, sight: Sight) -> bool:
        if sight.acknowledgment is not None:
            identifier = sight.acknowledgment.tx_sequence_id
        elif sight.message is not None and sight.message.transaction is not None:
            identifier = sight.message.transaction.tx_sequence_id
        else:
            return False
        return self.sequence in (shown(identifier), str(identifier.ordinal))


ALL: Final = Selection()


def kinds_named(words: list[str]) -> frozenset[Kind]:
    """Return the kinds whose names begin with any of these words, ignoring case.

    `UserMessage` and `internal` stand for groups of kinds.

    Raises:
        UsageError: there is no such kind.
    """
    found: set[Kind] = set()
    for word in words:
        folded = word.casefold().replace("-", "").replace("_", "")
        matching = GROUPS.get(folded) or {kind for kind in Kind if kind.casefold().startswith(folded)}
        if not matching or not folded:
            known = ", ".join([*Kind, "UserMessage", "internal"])
            raise UsageError(f"no kind of packet is called {word!r}; there are {known}")
        found |= matching
    return frozenset(found)


def sequence_named(text: str) -> str:
    """Check and return the text that names a sequence: an ordinal, or a time stamp, a colon and an ordinal.

    Raises:
        UsageError: the text has neither form.
    """
    if not re.fullmatch(r"[0-9]{1,10}(:[0-9]{1,10})?", text):
        raise UsageError(
            f"{text!r} names no sequence; give its ordinal, or TIMESTAMP:ORDINAL as --json shows it"
        )
    return text


class MessageNamed:
    """Selects the messages that the user named by GUID\\ordinal, by the ordinal alone, or by the whole label.

    Args:
        option: the command's option that takes the text, for use in error messages.

    Raises:
        UsageError: the text is empty, or has an invalid GUID.
    """

    def __init__(self, text: str, option: str = "--follow") -> None:
        if not text:
            raise UsageError(
                f"{option} takes a message: its identifier GUID\\NUMBER, its NUMBER alone, or its label"
            )
        self.text = text
        self._manager: Guid | None = None
        self._ordinal: int | None = None
        if found := re.fullmatch(r"(?:\{?([0-9A-Fa-f-]{36})\}?\\)?([0-9]{1,10})", text):
            self._ordinal = int(found[2])
            if found[1]:
                try:
                    self._manager = guid_from_text(found[1])
                except ValueError as error:
                    raise UsageError(str(error)) from None

    def fits(self, key: MessageKey, label: str | None) -> bool:
        """Whether the user named this message."""
        if self._ordinal is not None:
            return key[1] == self._ordinal and self._manager in (None, key[0])
        return label == self.text


def moment_named(text: str) -> Callable[[int], int]:
    """Read a time that the user gave, in one of three forms.

    The text is a number of seconds after the capture's first packet, a time of day on the date of that packet, or a
    date with or without a time. Times of day are in UTC; one that follows a date can have another offset.

    Returns:
        A function that takes the time of the first packet and returns the time that the user
        meant, in nanoseconds since 1970.

    Raises:
        UsageError: the text is not a time.
    """
    try:
        seconds = float(text)
        offset_ns = round(seconds * NANOSECONDS)
        return lambda first_ns: first_ns + offset_ns
    except (ValueError, OverflowError):
        pass
    clock = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(\.\d{1,9})?)?", text)
    if clock:
        hours, minutes, seconds_, fraction = clock.groups()
        day_ns = 86_400 * NANOSECONDS
        of_day_ns = (int(hours) * 3_600 + int(minutes) * 60 + int(seconds_ or 0)) * NANOSECONDS
        of_day_ns += round(float(fraction or 0) * NANOSECONDS)
        return lambda first_ns: first_ns - first_ns % day_ns + of_day_ns
    far = re.fullmatch(r"([+-]\d{4,15}|0000)(-.*)", text)
    eras, year = divmod(int(far[1]), ERA_YEARS) if far else (0, 0)
    try:
        moment = datetime.fromisoformat(f"{5 * ERA_YEARS + year}{far[2]}" if far else text)
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time; write seconds after the first packet, 09:30:00.5, or 2026-01-31T09:30:00"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole = moment.replace(microsecond=0)
    second = int(whole.timestamp()) + (ERA_S * (eras - 5) if far else 0)
    moment_ns = second * NANOSECONDS + moment.microsecond * 1_000
    return lambda _: moment_ns
