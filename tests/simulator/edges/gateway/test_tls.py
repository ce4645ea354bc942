"""HTTPS at the gateway: with a certificate and a key in files, and only for clients with certificates."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import trio
import trustme
from trio.testing import MockClock

from mqproto.base.errors import UsageError
from mqproto.simulator.base.http.server import LINGER_S, Limits
from mqproto.simulator.edges.gateway.admission import tls_of
from mqproto.simulator.edges.gateway.front import LIMIT_BYTES
from mqproto.simulator.topology import Topology
from tests.simulator.base.http.test_server import serving
from tests.simulator.certificates import issue
from tests.simulator.gateways import gateway
from tests.simulator.running import running

OURS, THEIRS = trustme.CA(), trustme.CA()
ORDERS = "/queues/orders/messages"


class Files(NamedTuple):
    certificate: Path
    key: Path
    clients: Path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path / "gateway.pem", tmp_path / "gateway.key", tmp_path / "clients.pem")
    shown = OURS.issue_cert("127.0.0.1")
    shown.cert_chain_pems[0].write_to_path(str(found.certificate))
    found.key.touch(0o600)
    found.key.write_bytes(shown.private_key_pem.bytes())
    THEIRS.cert_pem.write_to_path(str(found.clients))
    return found


def trusting(shown: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """Return a producer's TLS settings."""
    context = ssl.create_default_context()
    OURS.configure_trust(context)
    if shown is not None:
        shown.configure_cert(context)
    return context


async def test_over_tls_a_gateway_does_what_it_does_without(
    topology: Topology, tmp_path: Path, files: Files
) -> None:
    options: dict[str, Any] = {"tls_certificate": files.certificate, "tls_key": files.key}
    async with (
        running(topology, "destination", tmp_path),
        gateway(topology, tmp_path, verify=trusting(), **options) as producer,
    ):
        for duplicate in (False, True):
            answer = await producer.post(ORDERS, content=bytes(100_000), headers={"Idempotency-Key": "1"})
            assert answer.json()["duplicate"] is duplicate
        # A refusal comes although the body is still sent, and is not taken away by a reset.
        assert (await producer.post(ORDERS, content=bytes(LIMIT_BYTES + 1))).status_code == 413
        with pytest.raises(httpx.TransportError):
            async with httpx.AsyncClient(trust_env=False) as plain:
                await plain.get(producer.base_url.copy_with(scheme="http", path="/health"))


async def test_with_an_authority_for_clients_each_shows_a_certificate_of_it(
    topology: Topology, tmp_path: Path, files: Files
) -> None:
    options: dict[str, Any] = {
        "tls_certificate": files.certificate,
        "tls_key": files.key,
        "tls_clients": files.clients,
    }
    async with running(topology, "destination", tmp_path):
        for shown, is_taken in (
            (THEIRS.issue_cert("shop.example"), True),
            (OURS.issue_cert("shop.example"), False),
            (None, False),
        ):
            async with gateway(topology, tmp_path, verify=trusting(shown), **options) as producer:
                if is_taken:
                    assert (await producer.post(ORDERS)).status_code == 200
                else:
                    with pytest.raises(httpx.TransportError):
                        await producer.post(ORDERS)


async def test_a_handshake_that_does_not_come_is_cut_off(files: Files, idle_clock: MockClock) -> None:
    tls = tls_of(files.certificate, files.key, None)
    async with (
        serving(limits=Limits(head_s=10), tls=tls) as (server, connect),
        await connect() as silent,
        await connect() as plain,
        await connect() as stubborn,
    ):
        began_s = trio.current_time()
        await plain.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(trio.BrokenResourceError):
            assert b"HTTP" not in await plain.receive_some()
        await stubborn.send_all(b"\x16\x03\x01")
        with suppress(trio.BrokenResourceError):
            assert await silent.receive_some() == b""
        assert 9 < trio.current_time() - began_s < 11
        await trio.sleep(LINGER_S + 1)
        assert server.connections == 0


async def test_a_handshake_does_not_keep_the_server_from_ending(files: Files, idle_clock: MockClock) -> None:
    tls = tls_of(files.certificate, files.key, None)
    began_s = trio.current_time()
    async with serving(limits=Limits(head_s=100), tls=tls) as (server, connect), await connect():
        await trio.sleep(1)
        assert server.connections == 1
        server.stop()
        await trio.sleep(LINGER_S + 1)
        assert server.connections == 0
    assert trio.current_time() - began_s < 10


def test_what_cannot_be_served_is_said_in_one_line(files: Files, tmp_path: Path) -> None:
    assert tls_of(None, None, None) is None
    other = issue(tmp_path, "other")[1]
    files.certificate.chmod(0o644)
    for certificate, key, clients, words in (
        (files.certificate, None, None, "--tls-certificate and --tls-key belong together"),
        (None, None, files.clients, "--tls-certificate and --tls-key belong together"),
        (files.certificate, other, None, "is not the key of"),
        (files.certificate, files.certificate, None, "others can read the key"),
        (files.certificate, files.key, files.key, "there is no certificate in it"),
        (files.certificate, files.key, tmp_path / "no", "No such file or directory"),
    ):
        with pytest.raises(UsageError, match=words) as refused:
            tls_of(certificate, key, clients)
        assert "\n" not in str(refused.value)
