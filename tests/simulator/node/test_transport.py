"""Sockets between neighbours; whole conversations are in test_node.py."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio

from simulator.node.transport import dial


@pytest.mark.spec("[MS-MQQB] 3.1.5.2.1")
async def test_a_host_with_several_addresses_is_called_at_the_first_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def two_addresses(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
            assert host == "server-b"
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, port))
                for address in ("127.0.0.2", "127.0.0.1")
            ]

        monkeypatch.setattr(trio.socket, "getaddrinfo", two_addresses)
        with await dial("server-b", port, "127.0.0.1") as connected:
            assert connected.getpeername() == ("127.0.0.1", port)
    with pytest.raises(ConnectionRefusedError):
        await dial("server-b", port, "127.0.0.1")
