"""`mqproto probe`, which finds out whether a host speaks MSMQ and shows its parameters.

It sends one connection request over TCP and, at the same time, one Ping over UDP. It sends nothing that a queue manager
stores. The caller limits the time for the peer's answers. The peer's data is read only up to the first bytes that do
not belong to a handshake.
"""

from __future__ import annotations

import secrets
import socket
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import trio

from mqproto.base.errors import WireFormatError
from mqproto.neighbours.ping import PING_RESPONSE_MS
from mqproto.routing import MSMQ_PORT, PING_PORT
from mqproto.simulator.command.handshake import Handshake, HandshakeFinding, Outcome, shown
from mqproto.simulator.topology.file import read_address
from mqproto.wire import Guid, Ping, guid_text, ping_packet

READ_BYTES: Final = 4_096
ADDRESS_LIMIT: Final = 4
"""The maximum number of addresses that are tried for one host name."""
DATAGRAM_LIMIT: Final = 64
"""The maximum number of datagrams that are examined to find the response to our Ping."""
DATAGRAM_BYTES: Final = 64


@dataclass(slots=True)
class Report:
    """A host's answers, with the address that answered, or else the last address that was tried."""

    host: str
    port: int
    ping_port: int = PING_PORT
    address: str = ""
    tcp: HandshakeFinding = field(default_factory=HandshakeFinding)
    ping: HandshakeFinding = field(default_factory=HandshakeFinding)

    @property
    def is_msmq(self) -> bool:
        """Whether the port speaks MSMQ. An answer to a ping shows only that the host has a queue manager."""
        return self.tcp.outcome.is_msmq

    @property
    def is_nobody(self) -> bool:
        """Whether there was no answer at all."""
        nothing = (Outcome.UNREACHABLE, Outcome.SILENT)
        return self.tcp.outcome is Outcome.UNREACHABLE and self.ping.outcome in nothing


def target(text: str) -> tuple[str, int]:
    """Return the host and the port from a text of the form HOST, HOST:PORT or [::1]:PORT.

    Raises:
        TopologyError: the text has none of these forms.
    """
    return read_address(text, "HOST", MSMQ_PORT)


async def probe(
    host: str, port: int = MSMQ_PORT, *, ping_port: int = PING_PORT, timeout_s: float = 5
) -> Report:
    """Ask the peer at this address whether it speaks MSMQ.

    This takes `timeout_s` at most, and reads a few kilobytes at most.
    """
    report = Report(host, port, ping_port)
    ends_at = trio.current_time() + timeout_s
    addresses: list[str] = []
    with trio.move_on_at(ends_at):
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))[:ADDRESS_LIMIT]
        except (OSError, UnicodeError):  # The latter for what cannot be a name at all.
            pass
    if not addresses:
        for finding in (report.tcp, report.ping):
            finding.outcome, finding.detail = Outcome.UNREACHABLE, "no computer is found under this name"
    for place, address in enumerate(addresses):
        now_s = trio.current_time()
        share_s = (ends_at - now_s) / (len(addresses) - place)
        report = Report(host, port, ping_port, address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ask_by_tcp, report, share_s)
            nursery.start_soon(_ask_by_ping, report, min(share_s, PING_RESPONSE_MS / 1_000))
        if not report.is_nobody:
            break
    return report


async def _ask_by_tcp(report: Report, patience_s: float) -> None:
    began_s = trio.current_time()
    handshake = None
    with trio.move_on_after(patience_s):
        try:
            stream = await _connected(report.address, report.port)
        except OSError as error:
            report.tcp = HandshakeFinding(Outcome.UNREACHABLE, _unreached(error))
            return
        async with stream:
            handshake = Handshake(_anybody(), trio.current_time())
            handshake.finding.connect_ms = 1_000 * (trio.current_time() - began_s)
            report.tcp = handshake.finding
            await _converse(stream, handshake)
    if handshake is None:
        report.tcp = HandshakeFinding(Outcome.UNREACHABLE, f"no connection within {patience_s:.1f} s")
    else:
        handshake.ended(Outcome.SILENT, f"connects, and answers no request within {patience_s:.1f} s")


async def _connected(address: str, port: int) -> trio.SocketStream:
    [(family, _, _, _, where), *_] = await trio.socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    connecting = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        await connecting.connect(where)
    except BaseException:
        connecting.close()
        raise
    return trio.SocketStream(connecting)


async def _converse(stream: trio.SocketStream, handshake: Handshake) -> None:
    try:
        await stream.send_all(handshake.request)
        while not handshake.is_over:
            data = await stream.receive_some(READ_BYTES)
            if not data:
                break
            if reply := handshake.receive(data, trio.current_time()):
                await stream.send_all(reply)
    except trio.BrokenResourceError:
        pass
    handshake.ended(Outcome.CLOSED, "closes the connection without an answer")


async def _ask_by_ping(report: Report, patience_s: float) -> None:
    """Ask over UDP, with a socket that receives datagrams from this address only."""
    began_s = trio.current_time()
    report.ping = HandshakeFinding(Outcome.SILENT, f"no answer within {patience_s:.1f} s")
    request = Ping(cookie=secrets.randbits(32), qm_guid=_anybody())
    with trio.move_on_after(patience_s):
        try:
            [(family, _, _, _, where), *_] = await trio.socket.getaddrinfo(
                report.address, report.ping_port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
            )
            with trio.socket.socket(family, socket.SOCK_DGRAM) as asking:
                await asking.connect(where)
                await asking.send(ping_packet.encode(request))
                for _ in range(DATAGRAM_LIMIT):
                    datagram = await asking.recv(DATAGRAM_BYTES)
                    report.ping = _judged(datagram, request, 1_000 * (trio.current_time() - began_s))
                    if report.ping.outcome.is_msmq:
                        return
        except OSError as error:
            report.ping = HandshakeFinding(Outcome.UNREACHABLE, _unreached(error))


def _judged(datagram: bytes, request: Ping, trip_ms: float) -> HandshakeFinding:
    """Judge a datagram that may be the response to our Ping.  [MS-MQQB] 3.1.7.8"""
    try:
        response = ping_packet.decode(datagram)
    except WireFormatError:
        return HandshakeFinding(
            Outcome.FOREIGN, f"something that is not a Ping: {shown(datagram[: ping_packet.sizeof()])}"
        )
    if response.cookie != request.cookie:
        return HandshakeFinding(Outcome.INVALID, "a Ping, and not the answer to ours: its cookie is another")
    outcome = Outcome.REFUSED if response.refused else Outcome.ACCEPTED
    return HandshakeFinding(outcome, round_trip_ms=trip_ms, manager=response.qm_guid)


def _anybody() -> Guid:
    """Return the GUID of a queue manager that does not exist, which we present as our own."""
    return Guid(uuid.uuid4().bytes_le)


def _unreached(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens"
    return f"cannot be reached: {error.strerror}"


# What is said of it


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as values for programs; unknown fields are null."""
    return {
        "host": report.host,
        "address": report.address or None,
        "msmq": report.is_msmq,
        "tcp": {"port": report.port, **_finding_as_json(report.tcp)},
        "ping": {"port": report.ping_port, **_finding_as_json(report.ping)},
    }


def _finding_as_json(finding: HandshakeFinding) -> dict[str, Any]:
    manager = guid_text(finding.manager) if finding.manager is not None else None
    return {**asdict(finding), "outcome": str(finding.outcome), "manager": manager}


def as_lines(report: Report) -> Iterator[str]:
    """Yield the lines of the report."""
    tcp, ping = report.tcp, report.ping
    where = f"[{report.host}]:{report.port}" if ":" in report.host else f"{report.host}:{report.port}"
    if report.address not in ("", report.host):
        where += f" ({report.address})"
    also = "; but MSMQ answers pings" if ping.outcome.is_msmq and not report.is_msmq else ""
    yield f"{where}: {tcp.detail}{also}"
    for name, text in _facts(report):
        yield f"  {name:<15} {text}"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    tcp, ping = report.tcp, report.ping
    if tcp.manager is not None:
        yield "queue manager", guid_text(tcp.manager)
    if tcp.round_trip_ms is not None:
        yield "round trip", f"{tcp.round_trip_ms:.1f} ms, connected in {tcp.connect_ms:.1f} ms"
    if tcp.window_size is not None:
        yield "window", f"{tcp.window_size:,} messages"
        yield (
            "timeouts",
            (
                f"acknowledges after {tcp.recoverable_ack_timeout_ms:,} ms, gives up after {tcp.ack_timeout_ms:,} ms"
            ),
        )
    if tcp.operating_system is not None:
        # By [MS-MQQB] 2.2.3.1 they describe the initiator, which here is this program.
        yield "flags", f"{tcp.operating_system:#06x}, about who asked: the system there is not known"
    for remark in tcp.remarks:
        yield "but", remark
    if report.address:
        yield f"ping, UDP {report.ping_port}", _ping(ping, tcp)


def _ping(ping: HandshakeFinding, tcp: HandshakeFinding) -> str:
    if ping.outcome is Outcome.SILENT:
        return f"{ping.detail}, as Windows since Vista has it by default"
    if not ping.outcome.is_msmq or ping.manager is None:
        return ping.detail
    verdict = "accept" if ping.outcome is Outcome.ACCEPTED else "refuse"
    same = (
        "the same queue manager"
        if ping.manager == tcp.manager
        else f"queue manager {guid_text(ping.manager)}"
    )
    return f"{same} would {verdict} a session, {ping.round_trip_ms:.1f} ms"
