"""TLS between nodes: who is admitted, and who is refused and told why; the packets are the same as without TLS."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from mqproto.base.errors import UsageError
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.packets import read_packets
from mqproto.simulator.client import connect
from mqproto.simulator.node.connection import Connection, end_of, read_buffer
from mqproto.simulator.node.tls import (
    Certificates,
    Handshakes,
    TlsConnection,
    TlsSocket,
    certificates_of,
    handshakes,
)
from mqproto.simulator.node.tls.wire import PIECE_BYTES
from mqproto.simulator.rig.links import Links
from mqproto.simulator.rig.supervisor import supervised
from mqproto.simulator.topology import Action, Tls, Topology, load
from mqproto.simulator.topology.ports import reserved_address
from mqproto.turn.effects import Note
from mqproto.wire import (
    ConnectionParameters,
    Guid,
    PacketBuffer,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
    establish_connection,
    guid_text,
)
from mqproto.wire.layouts.internal import EstablishConnection
from tests.examples import a_transaction_header, a_user_message
from tests.programs import needs
from tests.simulator.certificates import AUTHORITY, EXPIRED, issue, over_tls, signed_by_itself, write_key
from tests.simulator.running import DESTINATION, Log, running, until_sent
from tests.test_readme import blocks_of

STRANGER = Guid(b"a stranger's guid"[:16])
STREAM = trio.SSLStream[trio.SocketStream]
Caller: TypeAlias = Callable[[Topology, Path], tuple[Topology, ssl.SSLContext]]


@pytest.fixture
def pair(tmp_path: Path) -> Topology:
    """Return the nodes sender and destination, with TLS between them, on ports that were free a moment ago."""
    return over_tls(load("pair"), tmp_path).with_free_ports()


def tls_of(topology: Topology, name: str) -> Tls:
    tls = topology.nodes[name].tls
    assert tls is not None
    return tls


def with_files(topology: Topology, name: str, certificate: Path, key: Path) -> Topology:
    """Return a topology with the node's certificate and key in other files."""
    node = replace(
        topology.nodes[name], tls=replace(tls_of(topology, name), certificate=certificate, key=key)
    )
    return replace(topology, nodes={**topology.nodes, name: node})


def showing(
    certificate: Path | None = None,
    key: Path | None = None,
    *,
    protocol: int = ssl.PROTOCOL_TLS_CLIENT,
    version: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    """Return TLS settings that accept what AUTHORITY has signed, and show a certificate if one is given."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    AUTHORITY.configure_trust(context)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


@asynccontextmanager
async def shaken(topology: Topology, context: ssl.SSLContext) -> AsyncIterator[STREAM]:
    """Connect to the TLS port of `destination`; yield the stream after the handshake."""
    async with await trio.open_tcp_stream(*tls_of(topology, "destination").address) as below:
        stream = STREAM(below, context)
        await stream.do_handshake()
        yield stream


async def asked(stream: trio.abc.Stream, client: Guid, server: Guid) -> EstablishConnection | None:
    """Return the answer to a request for a session; None if there is none."""
    await stream.send_all(encode_packet(establish_connection(client=client, server=server, time_stamp_ms=0)))
    buffer = PacketBuffer()
    while chunk := await stream.receive_some():
        for packet in buffer.feed(chunk):
            answer = decode_packet(packet)
            assert isinstance(answer, EstablishConnection)
            return answer
    return None


# Who is let in


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_pinned_neighbour_is_let_in(pair: Topology, tmp_path: Path, version: ssl.TLSVersion) -> None:
    sender, destination = pair.nodes.values()
    async with running(pair, "destination", tmp_path):
        context = showing(tls_of(pair, "sender").certificate, tls_of(pair, "sender").key, version=version)
        async with shaken(pair, context) as stream:
            answer = await asked(stream, sender.guid, destination.guid)
    assert answer is not None
    assert not answer.refused


def an_authority_and_what_it_signed(folder: Path) -> tuple[tuple[Path, Path], tuple[Path, Path]]:
    """Write the files of an authority, and those of a certificate that it has signed.

    The certificate's file includes the chain that leads to the authority.
    """
    authority = trustme.CA()
    own = folder / "authority.pem", folder / "authority.key"
    own[1].touch(0o600)
    authority.cert_pem.write_to_path(own[0])
    authority.private_key_pem.write_to_path(own[1])
    signed = issue(folder, "signed", authority=authority)
    signed[0].write_bytes(signed[0].read_bytes() + own[0].read_bytes())
    return own, signed


def signed_by_a_pinned_one(topology: Topology, folder: Path) -> tuple[Topology, ssl.SSLContext]:
    pinned, signed = an_authority_and_what_it_signed(folder)
    return with_files(topology, "sender", *pinned), showing(*signed)


def an_expired_one(topology: Topology, folder: Path) -> tuple[Topology, ssl.SSLContext]:
    files = issue(folder, "expired", until=EXPIRED)
    return with_files(topology, "sender", *files), showing(*files)


@pytest.mark.parametrize(
    ("caller", "reason"),
    [
        pytest.param(lambda pair, _: (pair, showing()), "it shows no certificate", id="none"),
        pytest.param(
            lambda pair, folder: (pair, showing(*issue(folder, "other"))),
            "its certificate is not pinned",
            id="another of the same authority",
        ),
        pytest.param(signed_by_a_pinned_one, "its certificate is not pinned", id="signed by a pinned one"),
        pytest.param(an_expired_one, "its certificate has expired", id="pinned and expired"),
    ],
)
async def test_others_are_refused_at_the_handshake_and_the_core_never_hears_of_them(
    caller: Caller, reason: str, pair: Topology, tmp_path: Path
) -> None:
    topology, context = caller(pair, tmp_path)
    log = Log()
    async with running(topology, "destination", tmp_path, log) as node:
        # With TLS 1.3 a caller hears only when it reads that it is not welcome. Not every ssl of Python tells a broken
        # end from another.
        came = b""
        with suppress(trio.BrokenResourceError):
            async with shaken(topology, context) as stream:
                came = bytes(await stream.receive_some())
        assert came == b""
        refused = await log.line("tls-refused")
        assert (refused["peer"], refused["reason"]) == ("127.0.0.1", reason)
        assert node.core.inspect().transports.sessions == {}
    assert log.lines("session-closed") == []


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP, and no TLS"),
        (bytes(64), "it speaks no TLS"),
        (b"", "it ended the connection"),
    ],
)
async def test_what_is_no_tls_is_refused_and_each_reason_is_one_line_however_often_it_comes(
    said: bytes, reason: str, pair: Topology, tmp_path: Path
) -> None:
    log = Log()
    async with running(pair, "destination", tmp_path, log):
        for _ in range(5):
            async with await trio.open_tcp_stream(*tls_of(pair, "destination").address) as stream:
                await stream.send_all(said)
                await stream.send_eof()
                with suppress(trio.BrokenResourceError):
                    while await stream.receive_some():
                        pass
    lines = [(line["reason"], line.get("repeated")) for line in log.lines("tls-refused")]
    assert lines == [(reason, None), (reason, 4)]


@pytest.mark.spec("[MS-MQQB] 3.1.5.3.1")
async def test_a_pinned_neighbour_that_presents_the_guid_of_another_is_refused_a_session(
    pair: Topology, tmp_path: Path
) -> None:
    log = Log()
    async with running(pair, "destination", tmp_path, log):
        context = showing(tls_of(pair, "sender").certificate, tls_of(pair, "sender").key)
        async with shaken(pair, context) as stream:
            answer = await asked(stream, STRANGER, pair.nodes["destination"].guid)
            assert answer is not None
            assert answer.refused
            assert await stream.receive_some() == b""
        closed = await log.line("session-closed")
    assert closed["section"] == "3.1.5.3.1"
    assert closed["reason"] == (
        f"it presents queue manager {guid_text(STRANGER)}, "
        f"and a certificate of {guid_text(pair.nodes['sender'].guid)}"
    )


@pytest.mark.parametrize("signed_by", ["the same authority", "the pinned one"])
async def test_a_neighbour_that_shows_another_certificate_is_not_spoken_to(
    signed_by: str, pair: Topology, tmp_path: Path
) -> None:
    """Somebody has put another server in the neighbour's place."""
    impostor = issue(tmp_path, "impostor")
    if signed_by == "the pinned one":
        pinned, impostor = an_authority_and_what_it_signed(tmp_path)
        pair = with_files(pair, "destination", *pinned)
    context = showing(*impostor, protocol=ssl.PROTOCOL_TLS_SERVER)
    there = tls_of(pair, "destination").address
    log = Log()
    said: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):
                said.append(bytes(await STREAM(stream, context, server_side=True).receive_some()))

    async with running(pair, "sender", tmp_path, log), trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(there[1], host=there[0])
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        async with connect(pair, "sender", tmp_path) as client:
            await client.send(DESTINATION, b"secret", transactional=True)
        closed = await log.line("session-closed")
        nursery.cancel_scope.cancel()
    assert closed["reason"] == f"no TLS with {there[0]}:{there[1]}: its certificate is not pinned"
    assert b"".join(said) == b""


async def test_a_neighbour_that_does_not_take_our_certificate_is_named_with_what_it_says(
    pair: Topology, tmp_path: Path
) -> None:
    """The neighbour knows another certificate of ours, from before a renewal."""
    log = Log()
    outdated = with_files(pair, "sender", *issue(tmp_path, "outdated"))
    async with running(outdated, "destination", tmp_path), running(pair, "sender", tmp_path, log):
        async with connect(pair, "sender", tmp_path) as client:
            await client.send(DESTINATION, b"an order", transactional=True)
        closed = await log.line("session-closed")
    assert closed["reason"] == "broken: it refuses our certificate or our TLS (unknown ca)"


async def test_certificates_that_have_signed_themselves_serve_as_well(pair: Topology, tmp_path: Path) -> None:
    for name in pair.nodes:
        authority = trustme.CA()
        files = tmp_path / f"own-{name}.pem", tmp_path / f"own-{name}.key"
        authority.cert_pem.write_to_path(files[0])
        files[1].touch(0o600)
        authority.private_key_pem.write_to_path(files[1])
        pair = with_files(pair, name, *files)
    async with running(pair, "destination", tmp_path), running(pair, "sender", tmp_path):
        assert await delivered(pair, "sender", DESTINATION, tmp_path) == b"a message"


async def delivered(topology: Topology, frm: str, queue: str, directory: Path) -> bytes:
    """Send a message, and receive it at its destination; return its body."""
    to, name = queue.split("\\")[0], queue.split("\\")[-1]
    async with connect(topology, frm, directory) as client:
        await client.send(queue, b"a message", transactional=True)
    async with (
        connect(topology, to, directory) as client,
        client.transaction(name, timeout_s=60) as [message],
    ):
        return message.body


# Files


@contextmanager
def refusal(said: str) -> Iterator[None]:
    with pytest.raises(UsageError, match=said) as refused:
        yield
    assert "\n" not in str(refused.value)
    assert "PRIVATE KEY" not in str(refused.value)


def written(path: Path, text: bytes) -> Path:
    path.touch(0o600)
    path.write_bytes(text)
    return path


def test_files_that_are_of_no_use_are_refused_at_the_start_with_what_to_do(
    pair: Topology, tmp_path: Path
) -> None:
    sender = tls_of(pair, "sender")

    def read(certificate: Path = sender.certificate, key: Path = sender.key) -> None:
        topology = with_files(pair, "sender", certificate, key)
        certificates_of(topology, topology.nodes["sender"])

    nowhere = tmp_path / "nowhere.pem"
    with refusal(f"{nowhere}: No such file or directory; name a PEM file"):
        read(certificate=nowhere)
    with refusal(f"{nowhere}: No such file or directory; name a PEM file"):
        read(key=nowhere)
    with refusal("no path; name a PEM file"):
        read(certificate=Path("nul\0"))
    with refusal(f"{sender.key}: there is no certificate in it; name a PEM file"):
        read(certificate=sender.key)
    text = sender.certificate.read_bytes()
    with refusal("cut.pem: its certificate cannot be read; bring it anew"):
        read(certificate=written(tmp_path / "cut.pem", text[:90] + text[-30:]))
    no_key = written(tmp_path / "no.key", text)
    with refusal(f"{no_key}: there is no private key in it that can be read; name a PEM file"):
        read(key=no_key)
    for other_key in (
        tls_of(pair, "destination").key,
        signed_by_itself(tmp_path)[1],
    ):  # The second is of RSA.
        with refusal(f"{other_key} is not the key of {sender.certificate}; name the one that belongs to it"):
            read(key=other_key)
    open_to_all = written(tmp_path / "open.key", sender.key.read_bytes())
    open_to_all.chmod(0o644)
    with refusal(rf"{open_to_all}: others can read the key \(mode 644\); chmod 600 it"):
        read(key=open_to_all)
    expired, key = issue(tmp_path, "expired", until=EXPIRED)
    with refusal(f"{expired} is of no use: its certificate has expired; bring another one"):
        read(expired, key)
    read()


def test_a_key_with_a_password_is_refused_as_nobody_is_there_to_type_it(
    pair: Topology, tmp_path: Path
) -> None:
    certificate, _ = signed_by_itself(tmp_path)
    encrypted = tmp_path / "encrypted.key"
    private = rsa.generate_private_key(65_537, 2048)
    write_key(encrypted, private, serialization.BestAvailableEncryption(b"password"))
    topology = with_files(pair, "sender", certificate, encrypted)
    with refusal(f"{encrypted} is encrypted, and nobody is there to type the password; decrypt it: openssl"):
        certificates_of(topology, topology.nodes["sender"])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"key_bits": 1024}, "is too weak .ee key too small.; make a stronger one"),
        (
            {"usage": ExtendedKeyUsageOID.SERVER_AUTH},
            "is of no use: the extendedKeyUsage of its certificate lacks serverAuth or clientAuth, and a node is both",
        ),
        (
            {"usage": ExtendedKeyUsageOID.CLIENT_AUTH},
            "is of no use: the extendedKeyUsage of its certificate lacks serverAuth or clientAuth, and a node is both",
        ),
    ],
)
def test_a_certificate_that_no_neighbour_would_take_is_refused_at_the_start(
    made: dict[str, Any], said: str, pair: Topology, tmp_path: Path
) -> None:
    topology = with_files(pair, "sender", *signed_by_itself(tmp_path, **made))
    with refusal(f"itself.pem {said}"):
        certificates_of(topology, topology.nodes["sender"])


def test_two_nodes_with_one_certificate_are_refused_as_neither_could_be_told_from_the_other(
    pair: Topology,
) -> None:
    sender = tls_of(pair, "sender")
    twins = with_files(pair, "destination", sender.certificate, sender.key)
    with refusal("sender and destination have one certificate; give each its own"):
        certificates_of(twins, twins.nodes["sender"])


def test_a_node_without_links_over_tls_reads_no_files() -> None:
    topology = load("pair")
    assert certificates_of(topology, topology.nodes["sender"]) is None


# Handshakes


class Door:
    """The handshakes of `destination`, and the lines that they leave in its log."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._certificates = self._of("destination")
        self.handshakes = Handshakes(self._certificates, self._note)
        self.refusals: list[tuple[object, object]] = []

    def _of(self, name: str) -> Certificates:
        certificates = certificates_of(self._topology, self._topology.nodes[name])
        assert certificates is not None
        return certificates

    def _note(self, notes: Sequence[Note]) -> None:
        self.refusals += [(note.facts["peer"], note.facts["reason"]) for note in notes]

    async def called(self) -> Guid | None:
        """Call as `sender`; return the queue manager that the caller is taken for.

        The connection is closed before its place is free again.
        """
        ours, theirs = socket.socketpair()
        caller = Handshakes(self._of("sender"), self._note)
        taken_for: list[Guid] = []
        async with trio.open_nursery() as nursery:

            async def answer() -> None:
                if (answered := await self.handshakes.answer(ours, "10.0.0.1")) is not None:
                    answered[0].close()
                    taken_for.append(answered[1])

            nursery.start_soon(answer)
            (await caller.call(theirs, self._topology.nodes["destination"].guid)).close()
        return taken_for[0] if taken_for else None


async def test_a_handshake_that_does_not_go_on_is_given_up_after_ten_seconds(
    pair: Topology, idle_clock: trio.testing.MockClock
) -> None:
    door = Door(pair)
    ours, theirs = socket.socketpair()
    with theirs:
        assert await door.handshakes.answer(ours, "10.0.0.9") is None
        assert ours.fileno() == -1
    assert door.refusals == [("10.0.0.9", "no handshake within 10 s")]
    assert trio.current_time() == pytest.approx(handshakes.HANDSHAKE_TIMEOUT_S)


async def test_a_host_that_begins_many_handshakes_takes_the_places_from_itself(
    pair: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HALF_OPEN_LIMIT", 4)
    door = Door(pair)
    hosts = ["::ffff:10.0.0.1", "2001:db8::1", "::ffff:10.0.0.2", "2001:db8::2", "2001:db8::3", "10.0.0.3"]
    pairs = [socket.socketpair() for _ in hosts]
    async with trio.open_nursery() as nursery:
        for host, (ours, _) in zip(hosts, pairs, strict=True):
            nursery.start_soon(door.handshakes.answer, ours, host)
            await trio.testing.wait_all_tasks_blocked(0.01)
        evicted = [host for host, _ in door.refusals]
        # Both come from the /64 that has most places, the oldest first.
        assert evicted == ["2001:db8::1", "2001:db8::2"]
        assert door.refusals[0][1] == "4 handshakes are under way, and most of them are its host's"
        assert await door.called() == pair.nodes["sender"].guid
        nursery.cancel_scope.cancel()
    for _, theirs in pairs:
        theirs.close()


async def test_a_neighbour_has_only_so_many_connections_and_a_place_is_free_when_one_ends(
    pair: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "CERTIFIED_LIMIT", 2)
    door = Door(pair)
    sender = pair.nodes["sender"].guid
    assert [await door.called() for _ in range(3)] == [sender, sender, None]
    assert door.refusals == [("10.0.0.1", "2 connections of it are open")]
    door.handshakes.ended(sender)
    assert await door.called() == sender


async def test_a_neighbour_may_call_again_when_its_connection_is_over(
    pair: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "CERTIFIED_LIMIT", 1)
    sender, destination = (node.guid for node in pair.nodes.values())
    context = showing(tls_of(pair, "sender").certificate, tls_of(pair, "sender").key)
    async with running(pair, "destination", tmp_path) as node:
        for _ in range(3):
            async with shaken(pair, context) as stream:
                assert await asked(stream, sender, destination) is not None
            while node.core.inspect().transports.sessions:  # noqa: ASYNC110
                await trio.sleep(0.01)  # A line that repeats itself is not written.


# The wire


class Heard:
    """A tap that keeps everything that it is told."""

    def __init__(self) -> None:
        self.outward = self.inward = b""
        self.ended = False

    def sent(self, data: bytes | memoryview) -> None:
        self.outward += data

    def received(self, data: bytes | memoryview) -> None:
        self.inward += data
        self.ended = not data

    def finished(self) -> None:
        pass

    def broken(self) -> None:
        pass


@asynccontextmanager
async def both_ends(
    topology: Topology, here: socket.socket, there: socket.socket, tap: Any = None
) -> AsyncIterator[tuple[Connection, Connection]]:
    """Connect sender and destination over TLS; the first connection has the tap."""
    sender, destination = (certificates_of(topology, node) for node in topology.nodes.values())
    assert sender is not None
    assert destination is not None
    calling = TlsSocket(here, sender.calling[topology.nodes["destination"].guid], accepted=False)
    accepting = TlsSocket(there, destination.accepting, accepted=True)
    threads = trio.CapacityLimiter(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calling.handshake, threads)
        nursery.start_soon(accepting.handshake, threads)
    async with trio.open_nursery() as nursery:
        ends = [
            TlsConnection(wire, nursery, read_buffer(), own)
            for wire, own in ((calling, tap), (accepting, None))
        ]
        yield ends[0], ends[1]
        for end in ends:
            end.close()


async def all_of(connection: Connection) -> bytes:
    """Return everything that arrives until the connection ends."""
    received = b""
    while True:
        await connection.readable()
        data = connection.read()
        if data is not None:
            if not data:
                return received
            received += data


async def read_from(connection: Connection, size: int) -> bytes:
    """Return the next `size` bytes, once they have arrived."""
    received = b""
    while len(received) < size:
        await connection.readable()
        received += connection.read() or b""
    return received


async def test_all_arrives_in_order_both_ways_however_slowly_it_is_read(pair: Topology) -> None:
    chunks = [bytes([number]) * (number * 9_973) for number in range(1, 40)]
    outward, inward = b"".join(chunks), b"".join(reversed(chunks))
    heard = Heard()
    async with both_ends(pair, *socket.socketpair(), heard) as (ours, theirs):
        for one, other in zip(chunks, reversed(chunks), strict=True):
            ours.send(one)
            theirs.send(other)
        assert ours.unsent_bytes > PIECE_BYTES
        assert await read_from(theirs, len(outward)) == outward
        assert await read_from(ours, len(inward)) == inward
        await ours.flushed()
        await theirs.flushed()
        assert ours.unsent_bytes == theirs.unsent_bytes == 0
    assert (heard.outward, heard.inward) == (outward, inward)


async def test_where_there_is_no_room_for_a_record_nothing_is_read_and_nothing_has_ended(
    pair: Topology,
) -> None:
    """A node reads only a limited number of bytes in one turn, and that may be few."""
    heard = Heard()
    async with both_ends(pair, *socket.socketpair(), heard) as (ours, theirs):
        theirs.send(b"something")
        await ours.readable()
        assert ours.read(1_000) is None
        assert await read_from(ours, 9) == b"something"
    assert heard.inward == b"something"


async def test_nobody_is_told_that_there_is_something_to_read_where_nothing_is(pair: Topology) -> None:
    """A node that was told this would be kept busy by each silent neighbour."""
    async with both_ends(pair, *socket.socketpair()) as (ours, theirs):
        assert ours.read() is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.readable)
            await trio.testing.wait_all_tasks_blocked()
            assert nursery.child_tasks
            theirs.send(b"something")
        assert bytes(ours.read() or b"") == b"something"
        ours.close()
        with pytest.raises(trio.ClosedResourceError):
            await ours.readable()


async def test_what_comes_with_the_end_of_the_handshake_is_read_though_the_system_has_nothing_more(
    pair: Topology,
) -> None:
    here, there = socket.socketpair()
    sender, destination = (certificates_of(pair, node) for node in pair.nodes.values())
    assert sender is not None
    assert destination is not None
    threads = trio.CapacityLimiter(1)
    calling = TlsSocket(here, sender.calling[pair.nodes["destination"].guid], accepted=False)
    accepting = TlsSocket(there, destination.accepting, accepted=True)
    async with trio.open_nursery() as nursery:

        async def call() -> None:
            await calling.handshake(threads)
            calling.send(b"at once")  # Its end of the handshake is still under way.

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(accepting.handshake, threads)
    async with trio.open_nursery() as nursery:
        connection = TlsConnection(accepting, nursery, read_buffer())
        await connection.readable()
        data = connection.read()
        assert data is not None
        assert bytes(data) == b"at once"
        assert connection.read() is None
        connection.close()
        calling.close()


async def test_an_end_is_told_though_the_peer_waits_for_ours_before_it_closes(pair: Topology) -> None:
    """stunnel does this: it sends close_notify, and keeps the TCP connection open."""
    here, there = socket.socketpair()
    destination = certificates_of(pair, pair.nodes["destination"])
    assert destination is not None
    wire = TlsSocket(here, destination.accepting, accepted=True)
    context = showing(tls_of(pair, "sender").certificate, tls_of(pair, "sender").key)
    peer = trio.SSLStream(trio.SocketStream(trio.socket.from_stdlib_socket(there)), context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.handshake, trio.CapacityLimiter(1))
        await peer.do_handshake()
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            await peer.send_all(b"the last")
            with pytest.raises(trio.BrokenResourceError):
                await peer.unwrap()

        nursery.start_soon(end)
        await trio.testing.wait_all_tasks_blocked(0.01)  # Both are there to be read at once.
        connection = TlsConnection(wire, nursery, read_buffer())
        assert await all_of(connection) == b"the last"
        connection.close()
    await trio.aclose_forcefully(peer)


async def test_our_end_is_told_before_the_connection_closes_and_what_the_peer_still_sends_is_read(
    pair: Topology,
) -> None:
    here, there = socket.socketpair()
    destination = certificates_of(pair, pair.nodes["destination"])
    assert destination is not None
    wire = TlsSocket(here, destination.accepting, accepted=True)
    context = showing(tls_of(pair, "sender").certificate, tls_of(pair, "sender").key)
    peer = trio.SSLStream(trio.SocketStream(trio.socket.from_stdlib_socket(there)), context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.handshake, trio.CapacityLimiter(1))
        await peer.do_handshake()
    heard = Heard()
    async with trio.open_nursery() as nursery:
        connection = TlsConnection(wire, nursery, read_buffer(), heard)  # type: ignore[arg-type]
        connection.send(b"good-bye")
        nursery.start_soon(connection.finish)
        assert await peer.receive_some() == b"good-bye"
        # No end without close_notify is taken for one here.
        assert await peer.receive_some() == b""
        await peer.send_all(b"one moment")
        await peer.aclose()
    assert (heard.inward, heard.ended) == (b"one moment", True)


@pytest.mark.parametrize(
    ("does", "end"), [("alters a bit", "broken: decryption failed or bad record mac"), ("hangs up", "")]
)
async def test_somebody_between_can_end_a_connection_and_do_nothing_else(
    does: str, end: str, pair: Topology
) -> None:
    (here, left), (right, there) = socket.socketpair(), socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    altering = False

    async def carry(source: socket.socket, sink: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(source)
            data = bytearray(source.recv(65_536))
            if altering:
                data[-1] ^= 1
            sink.send(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry, left, right)
        nursery.start_soon(carry, right, left)
        async with both_ends(pair, here, there) as (ours, theirs):
            if does == "alters a bit":
                altering = True
                ours.send(b"a packet")
                with pytest.raises(OSError, match=r".") as broken:
                    await all_of(theirs)
                assert end_of(broken.value) == end
            else:
                right.shutdown(socket.SHUT_WR)
                assert await all_of(theirs) == b""
            nursery.cancel_scope.cancel()
    left.close()
    right.close()


async def test_a_peer_that_is_gone_is_no_error_to_those_who_send(pair: Topology) -> None:
    async with both_ends(pair, *socket.socketpair()) as (ours, theirs):
        theirs.close()
        ours.send(bytes(1_000_000))
        ours.send(b"more")
        await ours.flushed()
        assert ours.failure is not None
        assert ours.unsent_bytes == 0


# Whole nodes


async def test_a_capture_has_the_messages_that_cross_inside_at_both_ends(
    pair: Topology, tmp_path: Path
) -> None:
    paths = {name: tmp_path / f"{name}.pcapng" for name in pair.nodes}
    body = b"nobody between can read this" * 10_000
    async with (
        running(pair, "sender", tmp_path, capture=paths["sender"]),
        running(pair, "destination", tmp_path, capture=paths["destination"]),
    ):
        async with connect(pair, "sender", tmp_path) as client:
            await client.send(DESTINATION, body, transactional=True)
        async with (
            connect(pair, "destination", tmp_path) as client,
            client.transaction("orders", timeout_s=60) as [_],
        ):
            pass
        async with connect(pair, "sender", tmp_path) as client:
            await until_sent(client)
    at = {
        name: [(seen.source, seen.destination, seen.data) for seen in read_packets(path)]
        for name, path in paths.items()
    }
    assert sorted(at["sender"]) == sorted(at["destination"])
    messages = [
        seen
        for seen in read_packets(paths["sender"])
        if isinstance(seen.packet, UserMessage) and body in seen.data
    ]
    assert [seen.destination for seen in messages] == [Endpoint(*tls_of(pair, "destination").address)]


@asynccontextmanager
async def stunnel(folder: Path, configuration: str) -> AsyncIterator[None]:
    """Run stunnel as it is used in the field; it listens for all its services when the block begins."""
    file = folder / "stunnel.conf"
    file.write_text(f"foreground = yes\npid =\nsyslog = no\ndebug = info\n{configuration}", "utf-8")
    process = await trio.lowlevel.open_process(
        ["stunnel", str(file)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    log = process.stderr
    assert log is not None
    try:
        said = b""
        while said.count(b" bound to ") < configuration.count("accept ="):
            chunk = await log.receive_some()
            assert chunk, said.decode()
            said += chunk
        async with trio.open_nursery() as nursery:

            async def read_on(log: trio.abc.ReceiveStream) -> None:
                async for _ in log:
                    pass

            nursery.start_soon(read_on, log)
            yield
            nursery.cancel_scope.cancel()
    finally:
        process.send_signal(signal.SIGTERM)
        with trio.CancelScope(shield=True):
            await process.wait()
        await log.aclose()


@needs("stunnel")
async def test_a_queue_manager_without_tls_is_a_neighbour_through_stunnel_both_ways(
    pair: Topology, tmp_path: Path
) -> None:
    """stunnel has the certificate of `sender`; it calls `destination` on behalf of `sender`, and takes calls in
    `sender`'s place.
    """
    sender, destination = tls_of(pair, "sender"), tls_of(pair, "destination")
    outward = reserved_address()
    common = f"cert = {sender.certificate}\nkey = {sender.key}\nCAfile = {destination.certificate}\nverifyPeer = yes\n"
    services = [
        ("out", "yes", outward, destination.address),
        ("in", "no", sender.address, pair.nodes["sender"].address),
    ]
    configuration = "".join(
        f"[{name}]\nclient = {client}\naccept = {here[0]}:{here[1]}\nconnect = {there[0]}:{there[1]}\n{common}"
        for name, client, here, there in services
    )
    plain = replace(
        pair,
        nodes={
            "sender": replace(pair.nodes["sender"], tls=None),
            "destination": replace(pair.nodes["destination"], tls=None, host=outward[0], port=outward[1]),
        },
        links=tuple(replace(link, tls=False) for link in pair.links),
    )
    async with (
        stunnel(tmp_path, configuration),
        running(plain, "sender", tmp_path),
        running(pair, "destination", tmp_path) as there,
    ):
        # The one that has something to send calls: first through stunnel's client, then through its server.
        assert await delivered(pair, "destination", r"sender\private$\replies", tmp_path) == b"a message"
        there.stop()
    async with (
        stunnel(tmp_path, configuration),
        running(plain, "sender", tmp_path),
        running(pair, "destination", tmp_path),
    ):
        assert await delivered(pair, "sender", DESTINATION, tmp_path) == b"a message"


@needs("openssl")
async def test_the_topology_and_the_certificates_of_the_readme_serve(tmp_path: Path) -> None:
    [topology], [openssl] = blocks_of("tls", "toml"), blocks_of("tls", "sh")
    subprocess.run(["sh", "-euc", openssl.text], cwd=tmp_path, check=True, capture_output=True)  # noqa: ASYNC221
    file = tmp_path / "mine.toml"
    file.write_text(topology.text, "utf-8")
    mine = load(file).with_free_ports()
    async with running(mine, "sender", tmp_path), running(mine, "destination", tmp_path):
        assert await delivered(mine, "sender", DESTINATION, tmp_path) == b"a message"


@pytest.mark.long
async def test_a_link_over_tls_is_cut_and_stalled_like_any_other(tmp_path: Path) -> None:
    topology = over_tls(load("pair"), tmp_path).with_free_ports()
    links = Links(topology)
    async with trio.open_nursery() as nursery:
        detours = await nursery.start(links.run)
        async with supervised(topology, tmp_path, detours):
            assert await delivered(topology, "sender", DESTINATION, tmp_path) == b"a message"
            assert links.links[0].break_off(Action.CUT) > 0
            links.links[0].restore()
            assert await delivered(topology, "sender", DESTINATION, tmp_path) == b"a message"
        nursery.cancel_scope.cancel()


async def test_the_plain_port_gives_a_neighbour_with_tls_nothing_and_what_is_said_in_its_name_harms_nothing(
    pair: Topology, tmp_path: Path
) -> None:
    """A program at the neighbour's own address presents the neighbour's GUID, opens a session, and sends in the
    neighbour's name.
    """
    log = Log()
    sender, destination = pair.nodes.values()
    forged = a_user_message(
        source=sender.guid,
        destination_manager=destination.guid,
        destination=destination.queue("orders").identifier,
        body=b"forged",
        transaction=a_transaction_header(
            tx_sequence_id=TxSequenceId(time_stamp=0x7FFFFFFF, ordinal=1),
            tx_sequence_number=1,
            previous_tx_sequence_number=0,
        ),
    )
    async with running(pair, "destination", tmp_path, log):
        async with connect(pair, "destination", tmp_path) as client:
            await client.send(r"sender\private$\replies", b"for sender alone", transactional=True)
        async with await trio.open_tcp_stream(*destination.address) as plain:
            answer = await asked(plain, sender.guid, destination.guid)
            assert answer is not None
            assert not answer.refused
            parameters = ConnectionParameters(
                recoverable_ack_timeout_ms=500, ack_timeout_ms=20_000, window_size=64
            )
            await plain.send_all(encode_packet(parameters) + encode_packet(forged))
            await plain.send_eof()
            with suppress(trio.BrokenResourceError):
                packets = PacketBuffer().feed(b"".join([bytes(chunk) async for chunk in plain]))
                assert not any(isinstance(decode_packet(packet), UserMessage) for packet in packets)
        claimed = await log.line("guid-claimed")
        assert (claimed["manager"], claimed["peer"]) == (guid_text(sender.guid), "127.0.0.1")
        async with running(pair, "sender", tmp_path), connect(pair, "sender", tmp_path) as client:
            async with client.transaction("replies", timeout_s=60) as [message]:
                assert message.body == b"for sender alone"
            assert await delivered(pair, "sender", DESTINATION, tmp_path) == b"a message"
