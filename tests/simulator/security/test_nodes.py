"""Nodes with keys in files: the commands that people type, from `mqproto keys make` to `mqproto receive`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Final

import pytest
import trio

from mqproto.base.errors import UsageError
from mqproto.security import self_signed
from mqproto.simulator.client import connect
from mqproto.simulator.security import guarding
from mqproto.simulator.security.keyfiles import OF_USER, SIGNING, KeptKeyPair, KeyFiles, PublicFiles, keep_all
from mqproto.simulator.topology import Topology, TopologyError, parse
from mqproto.simulator.topology.places import keys_path, public_path
from mqproto.simulator.topology.views import as_toml
from mqproto.wire import guid_text
from tests.security.keys import own_key
from tests.simulator.running import Log, running
from tests.simulator.typed import Done, in_process

PAIR: Final = """
name = "pair"
[node.office]
[node.shop.queue.orders]
transactional = true
[node.shop.queue.signed]
authenticated = true
senders = ["S-1-5-21-1-2-3-1000"]
[[link]]
between = ["office", "shop"]
[user.alice]
sid = "S-1-5-21-1-2-3-1000"
certificates = ["alice.cer"]
[settings]
try_connect_interval_ms = 100
"""
DATE: Final = "20261126-000000"


@cache
def certified(name: str) -> KeptKeyPair:
    use = name if name == SIGNING else f"{OF_USER}{name}"
    key = own_key(1_040 if name == SIGNING else 1_024)
    return KeptKeyPair(use, key, self_signed(key, name, 1_700_000_000, 36_500))


@pytest.fixture
def pair(tmp_path: Path) -> Topology:
    """Return `office` and `shop`, each with keys; at `office`, alice signs as well."""
    (tmp_path / "alice.cer").write_bytes(certified("alice").certificate.pem())  # type: ignore[union-attr]
    for node, names in (("office", ["alice", SIGNING]), ("shop", [])):
        files = KeyFiles(keys_path(tmp_path, node), node)
        for kept in (KeptKeyPair("aes", own_key(1_024)), *map(certified, names)):
            files.keep(kept, DATE)
            if kept.use != "user-alice":
                PublicFiles(public_path(tmp_path, node)).write(kept)
    topology = parse(PAIR, "pair.toml", tmp_path).with_free_ports()
    (tmp_path / "pair.toml").write_text(as_toml(topology))
    return topology


async def typed(folder: Path, *arguments: str) -> Done:
    place = ("--topology", folder / "pair.toml", "--directory", folder)
    return await trio.to_thread.run_sync(partial(in_process, *arguments, *place))


async def sent(folder: Path, *arguments: str) -> None:
    done = await typed(folder, "send", *arguments, "--node", "office")
    assert (done.status, done.err) == (0, "")


async def received(folder: Path, queue: str = r"shop\orders") -> dict[str, object]:
    done = await typed(folder, "receive", queue, "--json", "--timeout", "20")
    assert (done.status, done.err) == (0, "")
    found: dict[str, object] = json.loads(done.out)
    return {
        name: found.get(name) for name in ("body", "encrypted", "signed_by", "sender_id", "authenticated")
    }


async def test_keys_change_while_nodes_run_and_all_of_them_know_it(pair: Topology, tmp_path: Path) -> None:
    """One message is still waiting: it was encrypted for the earlier keys, and has the earlier certificate."""
    log = Log()
    make = ("keys", "make", "--replace", "--bits", "1024", "--provider", "aes")
    async with running(pair, "office", tmp_path, log):
        await sent(tmp_path, r"shop\orders", "--encrypt", "--sign", "--body", "before")
        made = await typed(tmp_path, *make, "office")
        assert made.out.splitlines()[-1] == "office knows them from now on"
        await sent(tmp_path, r"shop\orders", "--encrypt", "--sign", "--body", "between")
        async with running(pair, "shop", tmp_path):
            for body, signer in (("before", "CN=signing"), ("between", "CN=office")):
                assert await received(tmp_path) == {
                    "body": body,
                    "encrypted": "AES-256",
                    "signed_by": signer,
                    "sender_id": None,
                    "authenticated": None,
                }
            made = await typed(tmp_path, *make, "shop")
            assert made.out.splitlines()[-1] == "office, shop know them from now on"
            await sent(tmp_path, r"shop\orders", "--cipher", "aes-128", "--body", "after")
            assert await received(tmp_path) == {
                "body": "after",
                "encrypted": "AES-128",
                "signed_by": None,
                "sender_id": None,
                "authenticated": False,
            }
    assert log.lines("message-refused-by-destination") == []


async def test_who_sends_may_hear_of_new_keys_before_the_one_who_has_them(
    pair: Topology, tmp_path: Path
) -> None:
    """A node that is just starting is not told about new keys: it looks at the files before it refuses a message that
    was encrypted for other keys.
    """
    async with running(pair, "office", tmp_path), running(pair, "shop", tmp_path):
        await sent(tmp_path, r"shop\orders", "--encrypt", "--body", "before")
        await received(tmp_path)
        keep_all(tmp_path, "shop", [KeptKeyPair("aes", own_key(1_032))], DATE)
        keep_all(tmp_path, "office", [replace(certified("alice"), use=SIGNING)], DATE)
        async with connect(pair, "office", tmp_path) as client:
            await client.read_keys()
        await sent(tmp_path, r"shop\orders", "--encrypt", "--sign", "--body", "after")
        found = await received(tmp_path)
    assert (found["body"], found["signed_by"]) == ("after", "CN=alice")


async def test_a_queue_asks_for_a_user_and_believes_nobody_else(pair: Topology, tmp_path: Path) -> None:
    log = Log()
    async with running(pair, "shop", tmp_path, log), running(pair, "office", tmp_path):
        await sent(tmp_path, r"shop\signed", "--body", "anybody")
        await sent(tmp_path, r"shop\signed", "--sender-id", "S-1-5-21-1-2-3-1000", "--body", "a liar")
        await sent(tmp_path, r"shop\signed", "--sign", "--body", "the node")
        await sent(tmp_path, r"shop\signed", "--certificate", "alice", "--body", "alice")
        found = await received(tmp_path, r"shop\signed")
        refused = await log.at_least(3, "message-refused")
    assert (found["body"], found["signed_by"], found["sender_id"]) == (
        "alice",
        "CN=alice",
        "S-1-5-21-1-2-3-1000",
    )
    reasons = [line["reason"] for line in refused]
    assert reasons == ["NACK_BAD_SIGNATURE", "NACK_BAD_SIGNATURE", "NACK_ACCESS_DENIED"]


async def test_a_queue_manager_in_no_topology_has_its_keys_from_an_operator(
    pair: Topology, tmp_path: Path
) -> None:
    guid, folder = guid_text(pair.nodes["shop"].guid).replace("E", "F"), public_path(tmp_path, "shop")
    kept = keys_path(tmp_path, "office") / guarding.PEERS / guid
    send = ("send", f"PRIVATE={guid}\\00000010", "--encrypt", "--body", "x", "--node", "office")
    wish = ("peers", "add", "far", "office", "--address", "10.0.0.9")
    async with running(pair, "office", tmp_path):
        refused = await typed(tmp_path, *wish, "--keys", str(folder))
        assert "name its GUID with --guid" in refused.err
        assert not kept.exists()
        added = await typed(tmp_path, *wish, "--guid", guid, "--keys", str(folder))
        assert added.status == 0, added.err
        assert sorted(path.name for path in kept.iterdir()) == ["aes.der"]
        done = await typed(tmp_path, *send)
        assert done.status == 0, done.err
        await typed(tmp_path, "peers", "remove", "far", "office")
        assert not kept.exists()
        done = await typed(tmp_path, *send)
        assert done.status != 0
        assert "no public key" in done.err or "is in the topology" in done.err


async def test_an_operator_says_what_a_queue_asks_and_it_stays_so(pair: Topology, tmp_path: Path) -> None:
    async with running(pair, "shop", tmp_path):
        made = await typed(
            tmp_path, "queue", "create", r"shop\private", "--authenticated", "--privacy", "body"
        )
        assert ", signed messages alone, encrypted messages alone, " in made.out
        alice = ("--sender", "S-1-5-21-1-2-3-1000", "--sender", "S-1-5-18")
        changed = await typed(tmp_path, "queue", "set", r"shop\private", "--weak-cipher", "rc4-128", *alice)
        assert "encrypted messages alone, takes RC4-128, 2 may send, " in changed.out
        for wrong, says in (
            ("--privacy=all", "must be none, optional, body"),
            ("--weak-cipher=des", "des is none: name RC2-128, RC4-128"),
            ("--sender=alice", "alice"),
        ):
            refused = await typed(tmp_path, "queue", "set", r"shop\private", wrong)
            assert says in refused.complaint
    async with running(pair, "shop", tmp_path):
        listed = json.loads((await typed(tmp_path, "queue", "list", "--json")).out)
        [asked] = [queue["protection"] for queue in listed if queue["name"] == "private"]
        assert asked == {
            "authenticated": True,
            "privacy": "body",
            "weak_ciphers": ["RC4-128"],
            "senders": ["S-1-5-21-1-2-3-1000", "S-1-5-18"],
        }
        wish = ("--no-authenticated", "--privacy", "optional", "--weak-cipher", "-", "--sender", "-")
        changed = await typed(tmp_path, "queue", "set", r"shop\private", *wish)
        assert "alone" not in changed.out


async def test_without_the_libraries_a_node_says_so_and_goes_on(
    pair: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "is_installed", lambda: False)
    log = Log()
    async with running(pair, "office", tmp_path, log), running(pair, "shop", tmp_path):
        [line] = log.lines("keys-not-read")
        assert line["advice"] == "pip install 'mqproto[security]', and start the node anew"
        done = await typed(tmp_path, "send", r"shop\orders", "--encrypt", "--body", "x", "--node", "office")
        assert "pip install 'mqproto[security]'" in done.complaint
        await sent(tmp_path, r"shop\orders", "--body", "in clear")
        assert (await received(tmp_path))["body"] == "in clear"


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


HURT: Final[dict[str, Callable[[Path], None]]] = {
    "office.keys/aes.pem: others can read the key (mode 644): chmod 600 it": lambda folder: (
        folder / "office.keys/aes.pem"
    ).chmod(0o644),
    "office.keys/aes.pem: no private key": lambda folder: damage(folder / "office.keys/aes.pem"),
    "office.keys/aes-until-may.pem: no private key.*; if it is needed no more, remove": lambda folder: damage(
        Path(shutil.copy(folder / "office.keys/aes.pem", folder / "office.keys/aes-until-may.pem"))
    ),
    "shop.public: aes: no PUBLICKEYBLOB": lambda folder: damage(folder / "shop.public/aes.blob"),
    "alice.cer: no certificate": lambda folder: damage(folder / "alice.cer"),
}


@pytest.mark.parametrize(("says", "hurt"), HURT.items(), ids=HURT)
async def test_a_node_whose_keys_are_of_no_use_does_not_start(
    pair: Topology, tmp_path: Path, says: str, hurt: Callable[[Path], None]
) -> None:
    hurt(tmp_path)
    with pytest.RaisesGroup(pytest.RaisesExc(UsageError, match=says.replace("(", r"\(").replace(")", r"\)"))):
        async with running(pair, "office", tmp_path):
            pass


def test_what_a_topology_says_of_keys_survives(pair: Topology, tmp_path: Path) -> None:
    office = replace(pair.nodes["office"], keys=tmp_path / "elsewhere")
    topology = replace(pair, nodes={**pair.nodes, "office": office})
    assert parse(as_toml(topology), "pair.toml") == topology


async def test_a_topology_names_private_keys_that_lie_elsewhere(pair: Topology, tmp_path: Path) -> None:
    """The keys' public halves are in the usual place once the node has started."""
    (tmp_path / "office.keys" / "signing.pem").rename(tmp_path / "elsewhere.pem")
    (tmp_path / "office.public" / "signing.cer").unlink()
    named = f'{PAIR}[node.office.private_keys]\nsigning = "elsewhere.pem"\n'
    topology = parse(named, "pair.toml", tmp_path).with_free_ports()
    (tmp_path / "pair.toml").write_text(as_toml(topology))
    assert parse(as_toml(topology), "pair.toml") == topology
    async with running(topology, "shop", tmp_path), running(topology, "office", tmp_path):
        async with connect(topology, "shop", tmp_path) as client:
            await client.read_keys()
        await sent(tmp_path, r"shop\orders", "--sign", "--body", "named")
        assert (await received(tmp_path))["signed_by"] == "CN=signing"
    for arguments in (("make", "office", "--replace"), ("import", "office", "x.pem", "--use", "signing")):
        refused = await typed(tmp_path, "keys", *arguments)
        assert refused.complaint == "the topology names the key of office for signing: name another there"
    with pytest.raises(TopologyError, match=r"private_keys\.des: name keys aes, enhanced, base"):
        parse(f'{named}des = "x.pem"\n', "pair.toml", tmp_path)
    files = KeyFiles(keys_path(tmp_path, "office"), "office", {"user-bob": tmp_path / "bob.pem"})
    assert files.users() == ["user-alice", "user-bob"]
