"""A separate program that sends POSTs over several connections, as fast as they are answered.

It uses as little of the processor as Python can, because the measured programs share the processor with it. Requests
are made beforehand except for their ids, connections stay open, and only the needed part of an answer is read.

    python -m tests.bench.programs.posting URL CONNECTIONS SECONDS BODY_BYTES PREFIX

It prints its results as one line of JSON (`Posted`).
"""

from __future__ import annotations

import selectors
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from json import dumps
from typing import Final
from urllib.parse import urlsplit

READ_BYTES: Final = 65_536
ANSWER_TIMEOUT_S: Final = 20.0


@dataclass
class Posted:
    """The results of posting.

    answered: the number of POSTs that were answered with 200, as new.
    delays_ms: the delay of each POST, sorted by size.
    wrong: the first answer that was anything else; empty if there was none.
    cpu_s: the processor time of this program.
    """

    answered: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    wrong: str = ""
    delays_ms: list[float] = field(default_factory=list)


class _Conversation:
    """One connection, with one request at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.answer = b""
        self.sent_s = 0.0


class Poster:
    """Posts to one URL.

    Args:
        prefix: the beginning of all ids. Each id is used once.
    """

    def __init__(self, url: str, body: bytes, prefix: str) -> None:
        place = urlsplit(url)
        head = (
            f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/octet-stream\r\n"
            f"Content-Length: {len(body)}\r\nIdempotency-Key: {prefix}-"
        )
        self._head, self._tail = head.encode("ascii"), b"\r\n\r\n" + body
        self._address = place.hostname, place.port
        self._number = 0
        self._posted = Posted()

    def post(self, connections: int, seconds: float) -> Posted:
        """Post for `seconds` over this number of connections. Return the results.

        Raises:
            OSError: a connection was refused or broken.
        """
        posted = self._posted
        with selectors.DefaultSelector() as selector:
            for _ in range(connections):
                connected = socket.create_connection(self._address)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(connected, selectors.EVENT_READ, _Conversation(connected))
            began_s, cpu_s = time.perf_counter(), time.process_time()
            for key in selector.get_map().values():
                self._send(key.data)
            open_count, until_s = connections, began_s + seconds
            while open_count:
                ready = selector.select(ANSWER_TIMEOUT_S)
                if not ready:
                    posted.wrong = posted.wrong or f"no answer within {ANSWER_TIMEOUT_S:g} s"
                    break
                for key, _ in ready:
                    conversation: _Conversation = key.data
                    if not self._is_answered(conversation):
                        continue
                    if time.perf_counter() < until_s and not posted.wrong:
                        self._send(conversation)
                    else:
                        open_count -= 1
            posted.seconds = time.perf_counter() - began_s
            posted.cpu_s = time.process_time() - cpu_s
            for key in list(selector.get_map().values()):
                key.data.socket.close()
        posted.delays_ms.sort()
        return posted

    def _send(self, conversation: _Conversation) -> None:
        self._number += 1
        conversation.sent_s = time.perf_counter()
        conversation.socket.sendall(b"%b%d%b" % (self._head, self._number, self._tail))

    def _is_answered(self, conversation: _Conversation) -> bool:
        """Read more bytes; return whether they complete an answer."""
        data = conversation.socket.recv(READ_BYTES)
        answer = conversation.answer = conversation.answer + data
        head, end, body = answer.partition(b"\r\n\r\n")
        if data and not (end and len(body) >= _length_in(head)):
            return False
        conversation.answer = b""
        if head.startswith(b"HTTP/1.1 200 ") and b"true" not in body:
            self._posted.answered += 1
            self._posted.delays_ms.append(1_000 * (time.perf_counter() - conversation.sent_s))
        else:
            self._posted.wrong = self._posted.wrong or answer.decode("utf-8", "replace") or "no answer"
        return True


def _length_in(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.partition(b"\r\n")[0]) if found else 0


if __name__ == "__main__":
    url, connections, seconds, body_bytes, prefix = sys.argv[1:]
    print(dumps(asdict(Poster(url, bytes(int(body_bytes)), prefix).post(int(connections), float(seconds)))))
