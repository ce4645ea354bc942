"""A node records what it sends and receives: `mqproto node --capture`.

The recording shows what the node's process handed to its system and was given by it, when that happened; the frames
around it are made up, as a network without loss would have shown them. Connections that were never made are not in it.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from mqproto.base.errors import UsageError
from mqproto.captures.files.append import GrowingFile
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.tcp import Endpoint
from mqproto.simulator.base.recorder import RecordedConnection, Recorder

if TYPE_CHECKING:
    # Clients have connections too, and no log: structlog would be a tenth of what they wait for.
    from structlog.typing import FilteringBoundLogger


class Recording:
    """One node's capture. What fails here is said in the log, once, and stops nothing but the recording.

    Args:
        path: the file; one that is there is gone on with.
        name: the node, as Wireshark shows it for the interface.

    Raises:
        UsageError: the file is something else, or cannot be written.
    """

    def __init__(self, path: Path, name: str, log: FilteringBoundLogger) -> None:
        self._path = path
        self._log = log
        try:
            self._file = GrowingFile(path)
        except OSError as error:
            raise UsageError(f"{path} cannot be written ({error.strerror}): name another file") from None
        self._recorder = Recorder(self._file, comment=f"what {name} sent and received", interface=name)
        self._has_told = False

    def opened(self, connected: socket.socket) -> Tap | None:
        """We have opened a connection; None if it cannot be recorded."""
        return self._tap(connected, Side.CLIENT)

    def accepted(self, connected: socket.socket) -> Tap | None:
        """We have accepted a connection; None if it cannot be recorded."""
        return self._tap(connected, Side.SERVER)

    def datagram(self, source: tuple[str, int], destination: tuple[str, int], data: bytes) -> None:
        """A datagram came or went."""
        try:
            self._recorder.datagram(Endpoint(*source[:2]), Endpoint(*destination[:2]), data)
        except UsageError as error:
            self._tell(str(error))

    def flush(self) -> None:
        """A turn is over: what happened in it is to outlive the process."""
        self._recorder.flush()
        if self._recorder.failure is not None:
            self._tell(self._recorder.failure.strerror or str(self._recorder.failure))

    def close(self) -> None:
        """The node ends."""
        self.flush()
        self._file.close()

    def _tap(self, connected: socket.socket, side: Side) -> Tap | None:
        try:
            here, there = (Endpoint(*name[:2]) for name in (connected.getsockname(), connected.getpeername()))
            ends = (here, there) if side is Side.CLIENT else (there, here)
            return Tap(self._recorder.connection(*ends), side)
        except OSError:  # It was reset before we could ask who is there.
            return None
        except UsageError as error:
            self._tell(str(error))
            return None

    def _tell(self, reason: str) -> None:
        if not self._has_told:
            self._has_told = True
            self._log.error("capture-incomplete", file=str(self._path), reason=reason)


class Tap:
    """One connection as its own end sees it; what cannot follow what was said before is left out.

    Args:
        side: ours.
    """

    def __init__(self, record: RecordedConnection, side: Side) -> None:
        self._record = record
        self._side = side
        self._finished: set[Side] = set()
        self._is_reset = False

    def sent(self, data: bytes | memoryview) -> None:
        """The system took this from us."""
        self._passed(self._side, data)

    def received(self, data: bytes | memoryview) -> None:
        """The system gave us this; nothing at all is the end of what the peer sends."""
        if data:
            self._passed(self._side.other, data)
        else:
            self._finish(self._side.other)

    def finished(self) -> None:
        """We send nothing more."""
        self._finish(self._side)

    def broken(self) -> None:
        """The peer, or the network, has reset the connection."""
        if not self._is_reset:
            self._is_reset = True
            self._record.reset(self._side.other)

    def _passed(self, sender: Side, data: bytes | memoryview) -> None:
        if not self._is_reset and sender not in self._finished:
            self._record.sent(sender, bytes(data))

    def _finish(self, sender: Side) -> None:
        if not self._is_reset and sender not in self._finished:
            self._finished.add(sender)
            self._record.finished(sender)
