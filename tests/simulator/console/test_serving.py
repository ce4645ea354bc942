"""The addresses at which a console listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.console import serving
from mqproto.simulator.topology import load
from mqproto.simulator.topology.places import Place
from tests.simulator.running import Log
from tests.simulator.typed import in_process


async def test_a_console_goes_elsewhere_if_its_port_is_taken_unless_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(load("three-node"), tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken: tuple[str, int] = other.getsockname()
        monkeypatch.setattr(serving, "PORT", taken[1])
        async with trio.open_nursery() as nursery:
            address: str = await nursery.start(serving.serve_console, place, Log())
            assert address.startswith("http://127.0.0.1:")
            assert f":{taken[1]}/" not in address
            nursery.cancel_scope.cancel()
        with pytest.raises(
            UsageError, match="is taken by another program; stop it or name another with --listen"
        ):
            await serving.serve_console(place, Log(), taken)


def test_an_address_that_is_none_is_refused_by_the_name_of_what_was_typed() -> None:
    done = in_process("console", "--listen", "127.0.0.1:0")
    assert done.status == 2
    assert done.complaint.startswith("--listen: '127.0.0.1:0' has no port")
