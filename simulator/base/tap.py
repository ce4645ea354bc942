"""Records what a node sends and receives: `mqproto node --capture`.

The recording has the data that the node's process exchanged with its system, and the times of these exchanges. The
frames around the data are made up, as if for a network without loss. Connections that were never made are missing.
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
    # Clients have connections too, but no log: importing structlog would be a tenth of their start-up time.
    from structlog.typing import FilteringBoundLogger


class Recording:
    """One node's capture. A failure is logged once, and stops only the recording.

    Args:
        path: the file; if it exists, it is continued.
        name: the node's name, which Wireshark shows as that of the interface.

    Raises:
        UsageError: the file is not a pcapng file, or cannot be written.
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
        """Return a tap for a connection that we opened; None if it cannot be recorded."""
        return self._tap(connected, Side.CLIENT)

    def accepted(self, connected: socket.socket) -> Tap | None:
        """Return a tap for a connection that we accepted; None if it cannot be recorded."""
        return self._tap(connected, Side.SERVER)

    def datagram(self, source: tuple[str, int], destination: tuple[str, int], data: bytes) -> None:
        """Record a datagram that was sent or received."""
        try:
            self._recorder.datagram(Endpoint(*source[:2]), Endpoint(*destination[:2]), data)
        except UsageError as error:
            self._tell(str(error))

    def flush(self) -> None:
        """Flush at the end of a turn, so that the turn's frames outlive the process."""
        self._recorder.flush()
        if self._recorder.failure is not None:
            self._tell(self._recorder.failure.strerror or str(self._recorder.failure))

    def close(self) -> None:
        """Flush and close the file when the node ends."""
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
    """One connection, as seen from our end. Data after an end or a reset is left out.

    Args:
        side: our side of the connection.
    """

    def __init__(self, record: RecordedConnection, side: Side) -> None:
        self._record = record
        self._side = side
        self._finished: set[Side] = set()
        self._is_reset = False

    def sent(self, data: bytes | memoryview) -> None:
        """Record data from us that the system has accepted."""
        self._passed(self._side, data)

    def received(self, data: bytes | memoryview) -> None:
        """Record data that we have received. Empty data means that the peer will not send any more."""
        if data:
            self._passed(self._side.other, data)
        else:
            self._finish(self._side.other)

    def finished(self) -> None:
        """Record that we will not send any more data."""
        self._finish(self._side)

    def broken(self) -> None:
        """Record that the peer or the network reset the connection."""
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
