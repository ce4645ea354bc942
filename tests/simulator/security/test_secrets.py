"""Everything that a node and its commands write is searched for private keys and session keys."""

from __future__ import annotations

import base64
import io
import textwrap
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

import mqproto.security
from mqproto.base.errors import UsageError
from mqproto.security import KeyGuard, KeyPair, Keys, SessionKey
from mqproto.simulator.security.keyfiles import KeyFiles
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.places import keys_path
from tests.security.keys import own_key
from tests.simulator.running import Log, running
from tests.simulator.security.test_nodes import certified, pair, received, sent, typed

__all__ = ["pair"]  # the fixture

SESSION_KEY: Final = bytes(range(101, 133))
BODY: Final = "a body that nobody on the way is to read"


def forms(secret: bytes) -> Iterator[bytes]:
    """Yield the forms in which people and programs may write these bytes: in both orders, raw, and as text."""
    for data in (secret, secret[::-1]):
        yield data
        yield data.hex().encode()
        yield data.hex().upper().encode()
        yield data.hex(" ").encode()
        yield str(int.from_bytes(data, "big")).encode()
        yield repr(data)[2:-1].encode()
        for shift in range(3):
            # Wherever they begin in what is encoded: without the letters that others share.
            yield base64.b64encode(bytes(shift) + data)[4:-4]


def secrets_of(pair: KeyPair) -> Iterator[bytes]:
    numbers = pair.rsa.private_numbers()
    for number in (numbers.d, numbers.p, numbers.q, numbers.dmp1, numbers.dmq1, numbers.iqmp):
        yield number.to_bytes(-(-number.bit_length() // 8), "big")
    body = pair.pem().split(b"-----")[2]
    yield from (line for line in body.splitlines() if len(line) == 64)


@pytest.fixture
def made() -> list[int]:
    """The lengths of the session keys that were made."""
    return []


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, made: list[int]) -> set[bytes]:
    """Return everything that is searched for; all session keys are made equal to SESSION_KEY."""

    def random(size: int) -> bytes:
        made.append(size)
        return SESSION_KEY[:size]

    monkeypatch.setattr(mqproto.security, "KeyGuard", partial(KeyGuard, random=random))
    pairs = [own_key(1_024), certified("alice").pair]
    whole = [SESSION_KEY, SESSION_KEY[:16], *(secret for each in pairs for secret in secrets_of(each))]
    return {form for secret in whole for form in forms(secret)}


def leaks(planted: set[bytes], data: bytes) -> list[bytes]:
    return [form for form in planted if form in data]


def test_what_is_planted_would_be_found(planted: set[bytes]) -> None:
    pem = own_key(1_024).pem()
    assert leaks(planted, pem)
    assert leaks(planted, b"x" + SESSION_KEY[::-1])
    assert leaks(planted, base64.b64encode(b"more" + SESSION_KEY + b"more"))
    assert leaks(planted, textwrap.fill(pem.decode(), 64).encode())


def files_but_keys(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.parent.suffix != ".keys"]


@pytest.mark.long
async def test_no_secret_is_in_any_output_log_capture_or_store(
    pair: Topology, tmp_path: Path, planted: set[bytes], made: list[int]
) -> None:
    log = Log()
    said = io.StringIO()

    async def type_in(*arguments: str) -> None:
        done = await typed(tmp_path, *arguments)
        said.write(done.out + done.err)

    office = running(pair, "office", tmp_path, log, capture=tmp_path / "office.pcapng")
    async with running(pair, "shop", tmp_path, log), office:
        for wish in (("--encrypt",), ("--encrypt", "--certificate", "alice")):
            await sent(tmp_path, r"shop\orders", *wish, "--body", BODY, "--final-ack", "--dead-letter")
        await received(tmp_path)
        for command in (
            ("queues", "--json"),
            ("peers", "show", "--json"),
            ("peek", r"shop\orders", "--json"),
            ("explain", r"shop\orders"),
            ("keys", "show", "office", "--json"),
            ("keys", "show", "shop"),
            ("keys", "export", "office"),
            ("keys", "export", "office", "--use", "user-alice"),
            ("keys", "make", "office", "--user", "bob", "--bits", "1024"),
            ("keys", "import", "office", str(keys_path(tmp_path, "office") / "aes.pem"), "--use", "enhanced"),
        ):
            await type_in(*command)
    assert made == [len(SESSION_KEY)]
    capture = (tmp_path / "office.pcapng").read_bytes()
    assert BODY.encode() not in capture
    assert len(said.getvalue()) > 1_000
    assert leaks(planted, said.getvalue().encode() + log.getvalue().encode() + capture) == []
    kept = files_but_keys(tmp_path)
    assert {"shop.sqlite", "office.sqlite", "aes.blob"} <= {path.name for path in kept}
    for path in kept:
        assert leaks(planted, path.read_bytes()) == [], path


def test_no_secret_is_in_what_is_printed_of_keys_or_of_an_error(tmp_path: Path, planted: set[bytes]) -> None:
    files = KeyFiles(keys_path(tmp_path, "office"), "office")
    files.keep(certified("alice"), "20261126-000000")
    path = files.path("user-alice")
    printed = [
        repr(each)
        for each in (
            own_key(1_024),
            SessionKey(0x6610, SESSION_KEY),
            Keys(own={"aes": (own_key(1_024),)}),
            certified("alice"),
        )
    ]
    path.write_bytes(path.read_bytes().replace(b"CERTIFICATE", b"CERTIFICAT"))
    try:
        files.load("user-alice")
    except UsageError:
        printed.append(traceback.format_exc())
    assert len(printed) == 5
    assert leaks(planted, "\n".join(printed).encode()) == []
