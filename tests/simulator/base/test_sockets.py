"""A call that connects to itself, and a call to a port without a listener."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from mqproto.base.errors import UsageError
from mqproto.captures.net.tcp import Endpoint
from mqproto.simulator.base import sockets
from mqproto.simulator.base.sockets import listen, refuse_itself, round_trip_s
from mqproto.simulator.node.transport import dial
from mqproto.simulator.rig.network import _Connection

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class Unlucky(socket.socket):
    """A socket whose local port is the port that it connects to.

    The system chooses such a local port about once in 28,000 calls.
    """

    def connect(self, address: Any) -> None:
        self.bind(address)
        super().connect(address)


class UnluckyWithSource(socket.socket):
    """An unlucky socket whose caller sets the address from which it calls."""

    port = 0

    def bind(self, address: Any) -> None:
        super().bind((address[0], self.port))


def test_a_call_can_meet_itself_and_is_told_from_others() -> None:
    port = free_port()
    with Unlucky() as caller:
        caller.connect((HOST, port))
        caller.sendall(b"echo")
        assert caller.recv(4) == b"echo"
        with pytest.raises(ConnectionRefusedError):
            refuse_itself(caller)
    with socket.create_server((HOST, port)) as listener, socket.create_connection((HOST, port)) as caller:
        refuse_itself(caller)
        assert listener.getsockname() == caller.getpeername()


async def test_a_node_that_meets_itself_where_nobody_listens_has_been_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    UnluckyWithSource.port = port = free_port()
    monkeypatch.setattr("mqproto.simulator.node.transport.socket.socket", UnluckyWithSource)
    with pytest.raises(ConnectionRefusedError):
        await dial(HOST, port, HOST)
    monkeypatch.undo()
    socket.create_server((HOST, port)).close()  # The port is free for whom it belongs to.


async def test_a_link_that_meets_itself_where_nobody_listens_has_been_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    UnluckyWithSource.port = port = free_port()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = _Connection(ours, HOST, Endpoint(HOST, 1))
        monkeypatch.setattr("mqproto.simulator.rig.network.socket.socket", UnluckyWithSource)
        with pytest.raises(ConnectionRefusedError):
            await connection.connect(Endpoint(HOST, port))
        monkeypatch.undo()
        connection.reset()
    socket.create_server((HOST, port)).close()


@pytest.mark.parametrize(
    ("host", "port", "error"),
    [
        ("0.0.0.0", 1, "from outside: `mqproto node`, gateway and trigger take --allow-remote"),
        ("a..b", 1, "no computer is called a..b: give an address"),
        ("192.0.2.1", 1, "192.0.2.1:1 is not an address of this machine; name another"),
        (HOST, 0, "is taken by another program; stop it or name another"),
    ],
)
def test_where_nobody_can_listen_is_said_in_one_line(host: str, port: int, error: str) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = port or other.getsockname()[1]
        with pytest.raises(UsageError) as refused:
            listen(host, port, allow_remote=host.startswith("192"), advice="name another")
    assert str(refused.value).endswith(error)


def test_the_system_tells_how_long_tcp_takes_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server((HOST, 0)) as listener,
        socket.create_connection(listener.getsockname()) as caller,
    ):
        answering, _ = listener.accept()
        with answering:
            caller.sendall(b"x")
            assert answering.recv(1) == b"x"
            found = round_trip_s(caller)
            if sockets.TCP_INFO is not None:
                assert found is not None
                assert 0 < found < 10
            monkeypatch.setattr(sockets, "TCP_INFO", None)
            assert round_trip_s(caller) is None, "as where the system does not tell"


def test_what_is_no_connection_of_tcp_has_no_round_trip() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert round_trip_s(one) is None
    assert round_trip_s(one) is None, "it is closed"


class Said:
    """A socket of a system that returns only these bytes of tcp_info."""

    def __init__(self, info: bytes) -> None:
        self._info = info

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        return self._info[:size]


@pytest.mark.skipif(sockets.TCP_INFO is None, reason="this system does not tell")
def test_the_round_trip_is_at_byte_68_of_what_linux_tells() -> None:
    """This is tcpi_rtt in linux/tcp.h."""
    assert round_trip_s(Said(bytes(68) + struct.pack("=I", 1_500) + bytes(180))) == 0.001_5
    assert round_trip_s(Said(bytes(256))) is None, "nothing was measured yet"
    assert round_trip_s(Said(b"\1" * 71)) is None, "a system that tells less"
