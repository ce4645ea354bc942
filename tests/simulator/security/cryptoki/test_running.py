"""Nodes with keys in tokens: `office` signs with one, `shop` opens with another, and no PIN is seen."""

from __future__ import annotations

import io
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from mqproto.base.errors import UsageError
from simulator.client import connect
from simulator.security.cryptoki import heldkeys
from simulator.security.keyfiles import SIGNING, KeyFiles
from simulator.topology import Topology, TopologyError, parse
from simulator.topology.places import keys_path
from simulator.topology.views import as_toml
from tests.simulator.running import Log, running
from tests.simulator.security.cryptoki.softhsm import PIN, Token, forget, needs_softhsm
from tests.simulator.security.test_nodes import certified
from tests.simulator.security.test_secrets import files_but_keys
from tests.simulator.typed import Done, in_process

PAIR = """
name = "pair"
[node.office]
[node.shop.queue.orders]
transactional = true
authenticated = true
[[link]]
between = ["office", "shop"]
[settings]
try_connect_interval_ms = 100
"""
SAID = io.StringIO()


async def typed(folder: Path, *arguments: str) -> Done:
    place = ("--topology", folder / "pair.toml", "--directory", folder)
    done = await trio.to_thread.run_sync(partial(in_process, *arguments, *place))
    SAID.write(done.out + done.err)
    return done


async def ready(token: Token, folder: Path) -> Topology:
    """Both nodes have what they need in the token, and nothing in files."""
    topology = parse(PAIR, "pair.toml").with_free_ports()
    (folder / "pair.toml").write_text(as_toml(topology))
    for node, use in (("shop", "aes"), ("office", "signing")):
        done = await typed(folder, "keys", "import", node, token.uri(use), "--use", use)
        assert (done.status, done.err) == (0, "")
    return topology


@contextmanager
def away(token: Token) -> Iterator[None]:
    """Take the tokens out, and put them back."""
    [*folders] = (token.folder / "tokens").iterdir()
    for each in folders:
        each.rename(token.folder / each.name)
    try:
        yield
    finally:
        for each in folders:
            (token.folder / each.name).rename(each)


@contextmanager
def open_to_others(token: Token) -> Iterator[None]:
    """Others can read its PIN."""
    forget()
    token.pin.chmod(0o644)
    yield
    token.pin.chmod(0o600)


SEND = ("send", r"shop\orders", "--encrypt", "--sign", "--node", "office", "--body")


@needs_softhsm
async def test_a_signed_and_encrypted_message_goes_from_token_to_token(
    token: Token, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over a token that is taken out, and over a session that is lost."""
    monkeypatch.setattr(heldkeys, "RETRY_S", 0)
    SAID.truncate(0)
    topology, log = await ready(token, tmp_path), Log()
    office = running(topology, "office", tmp_path, log, capture=tmp_path / "office.pcapng")
    receive = ("receive", r"shop\orders", "--json", "--timeout", "20")
    async with office, running(topology, "shop", tmp_path, log):
        assert (await typed(tmp_path, *SEND, "first")).status == 0
        first = (await typed(tmp_path, *receive)).out
        assert '"body": "first"' in first
        assert (
            '"encrypted": "AES-256", "signature": "MSMQ 2.0 with SHA-512", "signed_by": "CN=office"' in first
        )

        forget()
        assert (await typed(tmp_path, *SEND, "after a loss")).status == 0
        assert '"body": "after a loss"' in (await typed(tmp_path, *receive)).out

        with away(token):
            refused = await typed(tmp_path, *SEND, "nobody signs it")
            assert refused.status == 2
            assert "token office is not there" in refused.complaint
        assert (await typed(tmp_path, *SEND, "it is back")).status == 0
        assert '"body": "it is back"' in (await typed(tmp_path, *receive)).out
        for command in (
            ("keys", "show", "office", "--json"),
            ("explain", r"shop\orders"),
            ("queues", "--json"),
        ):
            await typed(tmp_path, *command)
    seen = SAID.getvalue() + log.getvalue()
    assert len(seen) > 1_000
    assert PIN not in seen
    assert [path for path in files_but_keys(tmp_path) if PIN.encode() in path.read_bytes()] == []
    assert [
        path for path in keys_path(tmp_path, "office").iterdir() if PIN.encode() in path.read_bytes()
    ] == []


@needs_softhsm
async def test_a_topology_names_keys_in_tokens_and_in_files(token: Token, tmp_path: Path) -> None:
    """Their public halves are where others look for them once the node has started."""
    kept = certified(SIGNING)
    assert kept.certificate is not None
    file = tmp_path / "elsewhere.pem"
    file.write_bytes(kept.pair.pem() + kept.certificate.pem())
    file.chmod(0o600)
    named = '[node.office.private_keys]\nsigning = "elsewhere.pem"\n[node.shop.private_keys]\n'
    named += f'aes = "{token.uri("aes")}"\n'
    topology = parse(PAIR + named, "pair.toml", tmp_path).with_free_ports()
    (tmp_path / "pair.toml").write_text(as_toml(topology))
    assert parse(as_toml(topology), "pair.toml") == topology
    async with running(topology, "shop", tmp_path), running(topology, "office", tmp_path):
        async with connect(topology, "shop", tmp_path) as client:
            await client.read_keys()
        assert (await typed(tmp_path, *SEND, "named")).status == 0
        done = await typed(tmp_path, "receive", r"shop\orders", "--json", "--timeout", "20")
    assert '"body": "named"' in done.out
    assert (
        '"encrypted": "AES-256", "signature": "MSMQ 2.0 with SHA-512", "signed_by": "CN=signing"' in done.out
    )
    for arguments in (("make", "shop", "--replace"), ("import", "shop", token.uri("signing"))):
        refused = await typed(tmp_path, "keys", *arguments)
        assert refused.complaint == "the topology names the key of shop for aes: name another there"
    for wrong, says in (
        ('des = "x.pem"', "node.shop.private_keys.des: name keys aes, enhanced, base, signing or user-NAME"),
        (f'base = "pkcs11:pin-value={PIN}"', "node.shop.private_keys.base: pin-value would show the PIN"),
    ):
        with pytest.raises(TopologyError, match=says) as refusal:
            parse(f"{PAIR}{named}{wrong}\n", "pair.toml", tmp_path)
        assert PIN not in str(refusal.value)
    signing = token.uri("signing")
    files = KeyFiles(
        keys_path(tmp_path, "shop"), "shop", {"signing": signing, "user-bob": signing, "aes": signing[:7]}
    )
    assert files.users() == ["user-bob"]
    for use, says in (("signing", "no certificate of key signing of token office lies"), ("aes", "which")):
        with pytest.raises(UsageError, match=rf"node.shop.private_keys.{use}: .*{says}"):
            files.load(use)


@needs_softhsm
async def test_what_arrives_while_the_token_is_out_waits_until_it_is_back(
    token: Token, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heldkeys, "RETRY_S", 0)
    topology, log = await ready(token, tmp_path), Log()
    async with running(topology, "office", tmp_path):
        assert (await typed(tmp_path, *SEND, "early")).status == 0
        async with running(topology, "shop", tmp_path, log):
            with away(token):
                [closed, *_] = await log.at_least(1, "session-closed")
                assert re.match("token office is not there; .*: plug it in", str(closed["reason"]))
            done = await typed(tmp_path, "receive", r"shop\orders", "--json", "--timeout", "20")
            assert '"body": "early"' in done.out
    assert log.lines("message-refused") == []


@needs_softhsm
@pytest.mark.parametrize(
    ("wrong", "says"),
    [(away, "token office is not there"), (open_to_others, "others can read the PIN (mode 644)")],
)
async def test_a_node_whose_token_is_of_no_use_does_not_start_and_no_traceback_has_the_pin(
    token: Token, tmp_path: Path, wrong: Callable[[Token], AbstractContextManager[None]], says: str
) -> None:
    topology = await ready(token, tmp_path)
    with wrong(token), pytest.RaisesGroup(UsageError) as caught:
        async with running(topology, "office", tmp_path):
            pass
    [error] = caught.value.exceptions
    assert str(error).startswith(f"{tmp_path / 'office.keys' / 'signing.pem'}: ")
    assert says in str(error)
    assert PIN not in "".join(traceback.format_exception(caught.value))
