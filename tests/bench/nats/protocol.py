"""The protocol of NATS' clients, as far as a producer and a consumer need it: what goes out, and what comes in.

It is text: a line, and behind some lines a payload whose size the line tells.
docs.nats.io/reference/reference-protocols/nats-protocol
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tests.bench.figures import BenchError

END: Final = b"\r\n"
PONG: Final = b"PONG\r\n"
CONNECT: Final = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"lang":"python","version":"1"}\r\n'
)


class Delivered(NamedTuple):
    """A message to one of our subscriptions. `reply` is empty where nobody asks for an answer."""

    subject: bytes
    reply: bytes
    payload: bytes


class Answer(msgspec.Struct):
    """What JetStream says to a request, or to a message that was published; there is more in it."""

    seq: int = 0
    duplicate: bool = False
    error: dict[str, object] | None = None


_answers: Final = msgspec.json.Decoder(Answer)


def answer_of(payload: bytes) -> Answer:
    """What JetStream answered.

    Raises:
        BenchError: it refuses, in its own words.
    """
    try:
        answer = _answers.decode(payload)
    except msgspec.DecodeError as error:
        raise BenchError(f"NATS answered what is no JSON of JetStream's: {error}") from None
    if answer.error is not None:
        raise BenchError(f"NATS refuses: {answer.error.get('description', answer.error)}")
    return answer


def published(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    """The bytes that publish one message."""
    return b"PUB %b %b%b%d\r\n%b\r\n" % (subject, reply, b" " if reply else b"", len(payload), payload)


def subscribed(subject: bytes, number: int) -> bytes:
    """The bytes that ask for messages; the number is whatever this connection has not used yet."""
    return b"SUB %b %d\r\n" % (subject, number)


class Incoming:
    """What a server says, in whatever pieces it comes.

    pings: how often it has asked for a PONG and got none yet.
    """

    def __init__(self) -> None:
        self._kept = b""
        self.pings = 0

    def feed(self, data: bytes) -> list[Delivered]:
        """The messages that are whole with these bytes.

        Raises:
            BenchError: the server complains, or says what no server says.
        """
        kept = self._kept + data if self._kept else data
        found: list[Delivered] = []
        at = 0
        while (end := kept.find(END, at)) >= 0:
            words = kept[at:end].split(b" ")
            if words[0] in (b"MSG", b"HMSG"):
                try:
                    size, headers = int(words[-1]), int(words[-2]) if words[0] == b"HMSG" else 0
                except (ValueError, IndexError):
                    raise BenchError(f"NATS says {kept[at:end][:100]!r}, which has no size") from None
                start, after = end + 2, end + 2 + size
                if len(kept) < after + 2:
                    break
                # MSG subject sid [reply] size, HMSG subject sid [reply] size-of-headers size
                reply = words[3] if len(words) == (6 if headers else 5) else b""
                found.append(Delivered(words[1], reply, kept[start + headers : after]))
                at = after + 2
                continue
            self._control(words[0], kept[at:end])
            at = end + 2
        self._kept = kept[at:]
        return found

    def _control(self, word: bytes, line: bytes) -> None:
        if word == b"PING":
            self.pings += 1
        elif word == b"-ERR":
            raise BenchError(f"NATS says {line[5:].decode('utf-8', 'replace')}")
        elif word not in (b"INFO", b"+OK", b"PONG"):
            raise BenchError(f"NATS says {line[:100]!r}, which is not of its protocol")
