"""A separate program: a consumer behind HTTP that answers at once and keeps what arrived, in order.

    POST /          200
    GET /COUNT      answered once COUNT messages have arrived since the last such request

The answer to a GET is `Consumed`, as JSON.

    python -m tests.bench.programs.consuming

It uses as little of the processor as Python can, because the measured programs share the processor with it.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from dataclasses import asdict, dataclass, field
from json import dumps
from typing import Final

from mqproto.simulator.base.program.output import end_with_input

READ_BYTES: Final = 262_144
SHOWN_BYTES: Final = 40
"""The number of bytes of each body that are kept."""
LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@dataclass
class Consumed:
    """The messages that have arrived.

    seconds: the time from the first to the last message.
    bodies: the beginning of each body, in order of arrival.
    cpu_s: the processor time of this program since the first message.
    """

    seconds: float = 0.0
    cpu_s: float = 0.0
    bodies: list[str] = field(default_factory=list)


class Consumer:
    """A server that runs until its process ends."""

    def __init__(self, listening: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._listening = listening
        self._consumed = Consumed()
        self._began_s = self._began_cpu_s = 0.0
        self._asking: tuple[socket.socket, int] | None = None

    def serve(self) -> None:
        """Serve forever."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    connected, _ = self._listening.accept()
                    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._selector.register(connected, selectors.EVENT_READ, bytearray())
                    continue
                assert isinstance(key.fileobj, socket.socket)
                self._read(key.fileobj, key.data)
            self._tell()

    def _read(self, connected: socket.socket, kept: bytearray) -> None:
        try:
            data = connected.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(connected)
            connected.close()
            return
        kept += data
        while (end := kept.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(kept, 0, end)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(kept) < whole:
                return
            if kept.startswith(b"GET /"):
                self._asking = connected, int(kept[5 : kept.index(b" ", 5)])
            else:
                self._take(bytes(kept[end + 4 : whole][:SHOWN_BYTES]))
                connected.sendall(OK)
            del kept[:whole]

    def _take(self, body: bytes) -> None:
        now_s, consumed = time.perf_counter(), self._consumed
        if not consumed.bodies:
            self._began_s, self._began_cpu_s = now_s, time.process_time()
        consumed.bodies.append(body.decode("ascii", "replace"))
        consumed.seconds = now_s - self._began_s

    def _tell(self) -> None:
        if self._asking is None or len(self._consumed.bodies) < self._asking[1]:
            return
        (connected, _), consumed = self._asking, self._consumed
        consumed.cpu_s = time.process_time() - self._began_cpu_s
        self._asking, self._consumed = None, Consumed()
        body = dumps(asdict(consumed)).encode()
        connected.setblocking(True)
        connected.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def main() -> None:
    """Run `python -m tests.bench.programs.consuming`."""
    end_with_input()
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"ready http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    Consumer(listening).serve()


if __name__ == "__main__":
    main()
