"""A quota that is larger than the free space on the disk is reported at the start, and when the space runs out."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from mqproto.base.errors import QuotaExceeded
from mqproto.simulator.base.storeerrors import DiskFullError
from mqproto.simulator.client import connect
from mqproto.simulator.node.room import GROWTH_S, LOOK_S, TRY_S, Fullness, Room
from mqproto.simulator.node.turns import BATCH_BYTES
from mqproto.simulator.storage import LIMITS, Store, base
from mqproto.simulator.storage.reserve import SHARES
from mqproto.simulator.storage.tables import SEQUENCES_KEPT
from mqproto.simulator.topology import load
from mqproto.turn.effects import IncomingRow, Writes
from mqproto.wire import (
    MAXIMUM_PACKET_SIZE,
    NULL_GUID,
    ConnectionParameters,
    Guid,
    encode_packet,
    establish_connection,
)
from tests.examples import a_user_message
from tests.simulator.running import DESTINATION, Log, running, until, until_sent

TAIL_BYTES = 100
"""The size in bytes of the last part of a large packet; it arrives at the same moment as the last parts of other
packets.
"""


def test_it_is_said_at_the_start_and_once_until_it_changes() -> None:
    free = 50
    room = Room(100, lambda: free)
    assert (said := room.look(0, 0)) is not None
    assert said[0] == "room-short"
    assert (said[1]["quota_bytes"], said[1]["free_bytes"]) == (100, 50)
    assert room.look(0, LOOK_S) is None
    assert room.look(60, 2 * LOOK_S) == (
        "room-enough",
        {"quota_bytes": 100, "stored_bytes": 60, "free_bytes": 50},
    )
    free = 30
    assert room.look(60, 2.5 * LOOK_S) is None, "the file system is asked once a minute"
    assert (said := room.look(60, 3 * LOOK_S)) is not None
    assert said[0] == "room-short"


def test_of_a_store_that_grows_it_says_how_long_the_room_lasts() -> None:
    free = 10**6
    room = Room(10_000, lambda: free)
    assert room.look(400, LOOK_S) is None
    assert room.look(1_600, LOOK_S + GROWTH_S) is None
    free = 6_000
    assert (said := room.look(1_600, 2 * LOOK_S + GROWTH_S)) is not None
    assert said[1]["lasts_s"] == 3_000


async def test_a_node_with_a_quota_that_the_disk_does_not_have_warns_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqproto.simulator.node.node.free_bytes", lambda folder: 2**20)
    log = Log()
    async with running(load("pair").with_free_ports(), "sender", tmp_path, log):
        line = await log.line("room-short")
    assert line["level"] == "warning"
    assert "quota_bytes" in line["advice"]


def test_a_reserve_that_is_used_is_said_and_is_tried_to_be_made_once_a_second(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite", bytes(range(16)), LIMITS._replace(reserve_bytes=12_000)) as store:  # type: ignore[arg-type]
        fullness, tried = Fullness(store), list[float]()
        assert fullness.look(1) is None
        reserve = store._reserve
        reserve._has(0)
        make, reserve.make = reserve.make, lambda: tried.append(0)  # type: ignore[method-assign]
        said = [fullness.look(1 + part * TRY_S / 10) for part in range(20)]
        assert [line[0] for line in said if line is not None] == ["disk-full"]
        assert len(tried) == 2
        reserve.make = make  # type: ignore[method-assign]
        assert (line := fullness.look(10)) is not None
        assert line[0] == "disk-has-room"
        assert store.room_bytes == 4_000


def test_that_sequences_of_strangers_were_forgotten_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "SEQUENCES_KEPT", 16)
    with Store(tmp_path / "a.sqlite", Guid(bytes(range(16)))) as store:
        rows = [
            IncomingRow(Guid(bytes(16)), -number, 1, 2, 3, 0, number, "10.0.0.9") for number in range(1, 21)
        ]
        store.commit(Writes(incoming={(row.source, row.queue): row for row in rows}))
        store.settle()
        fullness = Fullness(store)
        assert [fullness.look(1), fullness.look(2)] == [
            ("strangers-forgotten", {"sequences": 5, "kept": SEQUENCES_KEPT}),
            None,
        ]


async def test_a_node_without_any_room_waits_with_its_batch_and_goes_on_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, refused = Store.commit, 0

    def commit(self: Store, writes: Writes) -> None:
        nonlocal refused
        if writes.messages and refused < 2:
            refused += 1
            raise DiskFullError("a.sqlite: the disk is full: make room")
        sound(self, writes)

    monkeypatch.setattr(Store, "commit", commit)
    monkeypatch.setattr("mqproto.simulator.node.node.TRY_S", 0.01)
    log, topology = Log(), load("pair").with_free_ports()
    async with (
        running(topology, "destination", tmp_path, log),
        connect(topology, "destination", tmp_path) as client,
    ):
        await client.send("orders", b"an order", transactional=True)
        async with client.transaction("orders", timeout_s=0) as [message]:
            assert message.body == b"an order"
    assert refused == 2
    [line] = log.lines("disk-full-waits")
    assert "the disk is full: make room" in line["reason"]


async def test_what_a_node_without_room_has_not_taken_in_arrives_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_bytes: int | None = 0
    monkeypatch.setattr(
        Store, "room_bytes", property(lambda store: room_bytes if store.path.stem == "destination" else None)
    )
    log, topology = Log(), load("pair").with_free_ports()
    async with running(topology, "destination", tmp_path, log), running(topology, "sender", tmp_path):
        async with connect(topology, "destination", tmp_path) as client:
            with pytest.raises(QuotaExceeded, match="room"):
                await client.send("orders", b"refused", transactional=True)
        async with connect(topology, "sender", tmp_path) as client:
            await client.send(DESTINATION, b"an order", transactional=True)
            await log.line("session-closed")
            room_bytes = None
            await until_sent(client)
        async with connect(topology, "destination", tmp_path) as client:
            assert [message.body for message in await client.peek("orders")] == [b"an order"]


def test_a_share_of_the_reserve_has_room_for_the_largest_batch_of_neighbours() -> None:
    assert LIMITS.reserve_bytes // SHARES >= BATCH_BYTES


async def test_large_packets_that_end_at_the_same_moment_are_not_told_that_the_disk_is_full(
    tmp_path: Path,
) -> None:
    """The disk has gigabytes free.

    However, no batch should have more of these packets than a store's reserve can take on a full disk.
    """
    log, topology = Log(), load("fan-in").with_free_ports()
    node = topology.nodes["destination"]
    tails: list[tuple[socket.socket, bytes]] = []
    sent_bytes = 0

    async with (
        running(topology, "destination", tmp_path, log),
        trio.open_nursery() as nursery,
    ):
        for name in ("sender-1", "sender-2", "sender-3"):
            client = topology.nodes[name].guid
            shake = establish_connection(client=client, server=NULL_GUID, time_stamp_ms=0)
            parameters = ConnectionParameters(
                recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64
            )

            def packet(size_bytes: int, number: int, source: Guid = client) -> bytes:
                return encode_packet(
                    a_user_message(
                        source=source,
                        destination_manager=node.guid,
                        destination=node.queue("notes").identifier,
                        message_id=number,
                        recoverable=True,
                        body=bytes(size_bytes),
                    )
                )

            large, small = packet(MAXIMUM_PACKET_SIZE - 1_000, 1), packet(20_000, 2)
            stream = await trio.open_tcp_stream(*node.address)
            nursery.start_soon(_read, stream)
            first = encode_packet(shake) + encode_packet(parameters) + large[:-TAIL_BYTES]
            await stream.send_all(first)
            sent_bytes += len(first)
            tails.append((stream.socket._sock, large[-TAIL_BYTES:] + small))  # type: ignore[attr-defined]

        async with connect(topology, "destination", tmp_path) as operator:

            async def all_but_the_tails_are_there() -> bool:
                return sum(peer.size_bytes for peer in (await operator.peers()).peers) >= sent_bytes

            async def all_messages_are_there() -> bool:
                [waiting] = [
                    local.waiting for local in (await operator.queues()).local if local.name == "notes"
                ]
                return waiting == 2 * len(tails) or bool(log.lines("session-closed"))

            await until(all_but_the_tails_are_there)
            for connected, tail in tails:
                assert connected.send(tail) == len(tail)
            await until(all_messages_are_there)
        assert log.lines("session-closed") == []
        nursery.cancel_scope.cancel()


async def _read(stream: trio.SocketStream) -> None:
    async with stream:
        async for _ in stream:
            pass
