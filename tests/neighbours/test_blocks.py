"""Blocks: nobody from a blocked host gets an answer, even after restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.neighbours import blocks
from mqproto.neighbours.blocks import network_of, overlap
from mqproto.simulator.storage import Store
from mqproto.turn.effects import QueueKind
from tests.memory import memory_folder
from tests.pair import Net, at, chain, guid_of, queue

NOTES = queue("notes", 16, transactional=False)


def a_pair() -> Net:
    net = chain("a", "c", queues=[NOTES])
    net.start()
    return net


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("10.0.0.7/32", "10.0.0.7"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8::7", "2001:db8::/64"),
        ("2001:db8::7/128", "2001:db8::/64"),
        ("2001:db8::/48", "2001:db8::/48"),
    ],
)
def test_a_host_is_blocked_as_a_whole(text: str, network: str) -> None:
    assert network_of(text) == network
    assert network_of(network) == network


@pytest.mark.parametrize("text", ["10.0.0", "10.0.0.7/8", "a.host", "any", ""])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write an address, or a network as"):
        network_of(text)


@pytest.mark.parametrize(
    ("network", "origin", "is_shared"),
    [
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.0/8", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.0/24", True),
        ("10.0.0.7", "10.0.0.8", False),
        ("10.0.0.7", "any", False),
        ("10.0.0.7", "a.host", False),
        ("10.0.0.7", "2001:db8::/64", False),
    ],
)
def test_what_two_networks_share(network: str, origin: str, *, is_shared: bool) -> None:
    assert overlap(network, origin) is is_shared


def test_a_host_that_is_blocked_loses_the_sessions_that_it_opened_and_no_others() -> None:
    net = a_pair()
    core = net.nodes["c"].up
    there, elsewhere = core.accepted("10.0.0.7", net.now), core.accepted("10.1.0.7", net.now)
    assert core.block("10.0.0.0/16", is_blocked=True) == 1
    batch = core.take(net.now)
    assert [(close.session, close.section, close.reason) for close in batch.closes] == [
        (there, "3.1.5.10", "blocked by an operator")
    ]
    assert core.is_blocked("10.0.0.9")
    assert core.is_blocked("::ffff:10.0.0.9")
    assert not core.is_blocked("10.1.0.7")
    assert elsewhere in core.inspect().transports.sessions


def test_what_we_have_to_send_to_a_blocked_host_still_goes() -> None:
    net = a_pair()
    net.send("a", at("c", 16), "one")
    net.run()
    net.nodes["a"].up.inspect().blocks.networks = ("c",)
    net.send("a", at("c", 16), "two")
    net.run()
    assert net.receive("c", "notes") == [b"one", b"two"]


def test_a_block_outlasts_a_restart_and_so_does_its_end() -> None:
    net = a_pair()
    for network in ("10.0.0.7", "10.1.0.0/16"):
        net.nodes["c"].up.block(network, is_blocked=True)
        net.nodes["c"].up.block(network, is_blocked=True)
    net.run()
    net.kill("c")
    net.start("c")
    core = net.nodes["c"].up
    assert core.peers(net.now).blocked == ["10.0.0.7", "10.1.0.0/16"]
    assert core.is_blocked("10.1.2.3")
    core.block("10.1.0.0/16", is_blocked=False)
    net.run()
    net.kill("c")
    net.start("c")
    assert net.nodes["c"].up.peers(net.now).blocked == ["10.0.0.7"]
    with pytest.raises(UsageError, match=r"^10.1.0.0/16 is not blocked; blocked are: 10.0.0.7$"):
        net.nodes["c"].up.block("10.1.0.0/16", is_blocked=False)


def test_a_network_is_blocked_again_though_another_has_its_row() -> None:
    """The store compares rows by name; when a row is given to another network, the store must forget the row's old
    name.
    """
    with memory_folder() as folder, Store(Path(folder, "a.sqlite"), guid_of("c")) as store:
        net = a_pair()
        core = net.nodes["c"].up
        for network, is_blocked in (
            ("10.0.0.1", True),
            ("10.0.0.1", False),
            ("10.0.0.2", True),
            ("10.0.0.1", True),
        ):
            core.block(network, is_blocked=is_blocked)
            writes = core.take(net.now).writes
            assert writes is not None
            store.commit(writes)
        assert {row.name for row in store.load().queues if row.on_hold} == {"10.0.0.1", "10.0.0.2"}


def test_so_many_are_blocked_and_their_rows_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCKS", 2)
    net = a_pair()
    core = net.nodes["c"].up
    for number in range(20):
        core.block(f"10.0.0.{number}", is_blocked=True)
        core.block(f"10.0.0.{number}", is_blocked=False)
    for number in range(2):
        core.block(f"10.1.0.{number}", is_blocked=True)
    with pytest.raises(UsageError, match="unblock some, or block a wider network"):
        core.block("10.1.0.2", is_blocked=True)
    net.run()
    rows = [row for row in net.nodes["c"].store.load().queues if row.kind is QueueKind.BLOCKED]
    assert {row.name for row in rows} == {"10.1.0.0", "10.1.0.1"}


def test_who_is_turned_away_is_counted() -> None:
    net = a_pair()
    core = net.nodes["c"].up
    core.block("10.0.0.7", is_blocked=True)
    for _ in range(3):
        core.count_blocked("10.0.0.7", net.now)
    [peer] = core.peers(net.now).peers
    assert (peer.host, peer.opened, peer.ended, peer.blocked) == ("10.0.0.7", 3, 3, True)
    assert peer.reason == "blocked by an operator"
