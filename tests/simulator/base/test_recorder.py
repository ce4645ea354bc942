"""The recorder: many connections in one file, with times, on a disk that may be full."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest

from mqproto.captures.files.pcap import read_frames
from mqproto.captures.net.conversation import Side
from mqproto.captures.net.direction import Ending
from mqproto.captures.net.tcp import Endpoint
from mqproto.simulator.base.recorder import Recorder, steady_clock
from tests.captures.whole import reassemble, streams

CLIENT = Endpoint("127.0.0.1", 40_001)
SERVER = Endpoint("127.0.0.2", 1801)


class FullAfter(io.BytesIO):
    """A file on a disk that has room for only this many bytes."""

    def __init__(self, free_bytes: int) -> None:
        super().__init__()
        self.free_bytes = free_bytes

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(data) > self.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


class FullAtFlush(io.BytesIO):
    """A file whose buffer has room, although its disk has none."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_connections_are_recorded_at_the_moment_they_happen() -> None:
    now_ns = iter(range(1_000, 10_000, 1_000))
    file = io.BytesIO()
    recorder = Recorder(file, clock=lambda: next(now_ns))
    first, second = (
        recorder.connection(CLIENT, SERVER),
        recorder.connection(SERVER, CLIENT._replace(port=1801)),
    )
    first.sent(Side.CLIENT, b"one")
    second.sent(Side.SERVER, b"two")
    first.sent(Side.CLIENT, b"three")
    second.finished(Side.SERVER)
    recorder.close()
    found = reassemble(read_frames(io.BytesIO(file.getvalue())))
    assert [[(chunk.time_ns, chunk.data) for chunk in stream.chunks] for stream in found] == [
        [(3_000, b"one"), (5_000, b"three")],
        [],
        [],
        [(4_000, b"two")],
    ]
    assert found[3].ending is Ending.FINISHED


def test_the_same_ports_again_are_another_connection() -> None:
    file = io.BytesIO()
    recorder = Recorder(file)
    for data in (b"one", b"two"):
        connection = recorder.connection(CLIENT, SERVER)
        connection.sent(Side.CLIENT, data)
        connection.reset(Side.CLIENT)
    assert [stream.data for stream in reassemble(read_frames(io.BytesIO(file.getvalue())))][::2] == [
        b"one",
        b"two",
    ]


def test_two_who_record_one_connection_agree_on_its_numbers() -> None:
    captures = []
    for others in (0, 3):
        file = io.BytesIO()
        recorder = Recorder(file, clock=lambda: 0)
        for port in range(others):
            recorder.connection(CLIENT._replace(port=port), SERVER)
        for _ in range(2):
            recorder.connection(CLIENT, SERVER)
        frames = list(read_frames(io.BytesIO(file.getvalue())))
        captures.append([frame.data for frame in frames[3 * others :]])
    assert captures[0] == captures[1]
    assert captures[0][:3] != captures[0][3:]


def test_of_many_connections_only_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqproto.simulator.base.recorder.REMEMBERED", 10)
    file = io.BytesIO()
    recorder = Recorder(file, clock=lambda: 0)
    for port in [*range(11), 0, 10]:
        recorder.connection(CLIENT._replace(port=port), SERVER)
    opened = [frame.data for frame in read_frames(io.BytesIO(file.getvalue()))][::3]
    assert opened[11] == opened[0]
    assert opened[12] != opened[10]


def test_what_was_recorded_before_a_reset_is_in_the_file_without_a_close(tmp_path: Path) -> None:
    path = tmp_path / "run.pcapng"
    with path.open("wb") as file:
        connection = Recorder(file).connection(CLIENT, SERVER)
        connection.sent(Side.CLIENT, b"before the kill")
        connection.reset(Side.CLIENT)
        assert streams(path)[0].data == b"before the kill"


def test_a_full_disk_stops_the_recording_and_not_the_run() -> None:
    file = FullAfter(600)
    recorder = Recorder(file)
    connection = recorder.connection(CLIENT, SERVER)
    for _ in range(10):
        connection.sent(Side.CLIENT, bytes(50))
    connection.reset(Side.CLIENT)
    assert recorder.frame_count > 0
    assert recorder.frame_count + recorder.lost_frame_count == 3 + 10 * 2 + 1
    assert len(list(read_frames(io.BytesIO(file.getvalue())))) == recorder.frame_count
    with pytest.raises(OSError, match="No space left"):
        recorder.close()


def test_a_disk_that_is_full_when_the_buffer_is_flushed_is_told_at_the_close() -> None:
    recorder = Recorder(FullAtFlush())
    recorder.connection(CLIENT, SERVER).reset(Side.CLIENT)
    assert recorder.failure is not None
    with pytest.raises(OSError, match="No space left"):
        recorder.close()


def test_the_clock_never_goes_back() -> None:
    clock = steady_clock()
    times = [clock() for _ in range(1_000)]
    assert times == sorted(times)
