"""`mqproto fuzz peer`, which finds the peer, checks that it may be fuzzed, and formats the report."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import trio

from mqproto.base.errors import UsageError
from mqproto.simulator.command.probe import target as read_target
from mqproto.simulator.fuzz.findings import FuzzFinding
from mqproto.simulator.fuzz.peer.attack import Attack
from mqproto.simulator.fuzz.peer.campaign import Campaign, Plan, Report
from mqproto.simulator.fuzz.peer.canary import a_canary
from mqproto.simulator.fuzz.peer.conduct import Fault
from mqproto.simulator.fuzz.peer.lines import HELD_UP, TURNED_AWAY, JudgedLine, Place, connected
from mqproto.simulator.fuzz.peer.process import Process
from mqproto.simulator.fuzz.tactics.cases import FUZZ, case_from_how
from mqproto.simulator.fuzz.tactics.packets import PRESENTED, connection_request
from mqproto.simulator.fuzz.tactics.talk import PeerTarget
from mqproto.wire import NULL_GUID, Guid, guid_from_text, guid_text

__all__ = ["DEFAULT_QUEUES", "FUZZ", "Options", "as_lines", "fuzz_peer", "read_guid", "repeat"]

DEFAULT_QUEUES: Final = ("notes", "orders")
"""The queues of the node `destination` in the topology three-node."""
BOUNDED: Final = (
    "it bounds what one host takes of it, and cases waited for their turn; a node of ours has more of them heard with "
    "strangers_share_percent = 100"
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options for a peer.

    queues: the destinations of valid messages, as names of private queues, or as direct names without `DIRECT=`.
    presented: the queue manager that we claim to be; None for strangers.
    known: queue managers that the peer knows; some cases speak in their names.
    """

    queues: tuple[str, ...] = DEFAULT_QUEUES
    presented: Guid | None = None
    known: tuple[Guid, ...] = ()
    ping_port: int = 3_527
    patience_s: float = 15
    allow_remote: bool = False


async def fuzz_peer(
    peer: str,
    options: Options,
    plan: Plan,
    *,
    pid: int | None = None,
    growth_mb: float = 512,
    show: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Fuzz the queue manager at HOST or HOST:PORT.

    Raises:
        UsageError: the host is another machine and `allow_remote` is false, or it has no queue manager that talks to
            us.
    """
    process = Process(pid, growth_mb) if pid is not None else None
    place = await place_of(peer, options)
    place.server = await introduced(place, options.presented or Guid(secrets.token_bytes(16)))
    return await Campaign(place, target_of(place, options), plan, process, show).run()


async def repeat(finding: FuzzFinding, peer: str, options: Options, *, as_new: bool = False) -> Fault | None:
    """Send the case of a finding again, exactly as it was; return the fault if it shows again.

    Args:
        as_new: whether to speak as a new queue manager and with the current time, for a peer that remembers the old
            identity and time.

    Raises:
        UsageError: as for `fuzz_peer`; or the finding does not come from fuzzing a peer.
    """
    case = case_from_how(finding.how, finding.data)
    place = await place_of(peer, options)
    place.server = await introduced(place, options.presented or Guid(secrets.token_bytes(16)))
    if as_new:
        case = case.renewed(Guid(secrets.token_bytes(16)), int(time.time()))
    async with a_canary(place, target_of(place, options), secrets.randbits(32)) as canary:
        fault = await canary.check()
        if fault is not None:
            raise UsageError(f"{place.address} serves nobody before anything is sent: {fault}")
        return await Attack(place, canary.check).carry_out(case) or await canary.check()


async def place_of(peer: str, options: Options) -> Place:
    """Return the place of a peer.

    Raises:
        UsageError: there is no such host, or it is another machine and `allow_remote` is false.
    """
    host, port = read_target(peer)
    try:
        [(family, _, _, _, where), *_] = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UsageError(f"no computer is found under {host}") from None
    if not options.allow_remote and not ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback:
        raise UsageError(
            f"{host} is not this machine ({where[0]}): hostile packets go there only with --allow-remote"
        )
    return Place(family, tuple(where), options.ping_port, options.patience_s)


def target_of(place: Place, options: Options) -> PeerTarget:
    """Return the target that the cases are made for."""
    assert place.server is not None
    return PeerTarget(
        tuple(_direct_name(queue, str(place.where[0])) for queue in options.queues),
        place.server,
        options.presented,
        int(time.time()),
        options.known,
    )


def _direct_name(queue: str, address: str) -> str:
    if "\\" in queue:
        return queue
    return rf"{'OS' if ':' in address else 'TCP'}:{address}\private$\{queue}"


async def introduced(place: Place, client: Guid) -> Guid:
    """Ask the peer for its queue manager's GUID.

    Raises:
        UsageError: there is no answer, or it is not from a queue manager that wants a session.
    """
    stream = await connected(place)
    if isinstance(stream, Fault):
        raise UsageError(f"{place.address}: {stream.rule} ({stream.detail}): there is nobody to fuzz")
    async with trio.open_nursery() as nursery:
        line = JudgedLine(place, stream)
        nursery.start_soon(line.listen)
        fault = await line.say(connection_request().replace(PRESENTED, client)) or await line.settle()
        line.close()
        nursery.cancel_scope.cancel()
    server = line.conduct.answered_by
    if fault is not None or server is None or server == NULL_GUID:
        reason = str(fault) if fault is not None else "it closes the connection without an answer"
        raise UsageError(f"{place.address} is not a queue manager that talks to us: {reason}")
    if line.conduct.is_refused:
        raise UsageError(
            f"{place.address}: queue manager {guid_text(server)} refuses us a session: try --as with one that it knows"
        )
    return server


def read_guid(text: str) -> Guid:
    """Return a GUID from text.

    Raises:
        UsageError: it is not a GUID.
    """
    try:
        return guid_from_text(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def as_lines(report: Report) -> Iterator[str]:
    """Yield the report of a campaign, for people."""
    yield (
        f"{report.peer}, seed {report.seed}: {report.cases:,} cases in {report.seconds:,.0f} s, "
        f"{report.cases_per_s:,.0f} a second"
    )
    yield ""
    width = max(map(len, report.kinds))
    for kind, count in report.kinds.most_common():
        yield f"{kind:{width}}  {count:>12,}"
    yield ""
    for name, figure in report.counts.items():
        yield f"{name:{width}}  {figure:>12,}"
    slowest_ms = 1_000 * report.slowest_check_s
    yield f"{'looks at a healthy session':{width}}  {report.checks:>12,}, the slowest {slowest_ms:,.0f} ms"
    if report.memory_mb:
        first, last = report.memory_mb
        yield f"{'MB of memory at first and at last':{width}}  {first:>12,.0f} and {last:,.0f}"
    if any(report.counts[name] for name in (TURNED_AWAY, HELD_UP)):
        yield BOUNDED
    yield ""
    yield from report.findings.lines()
    if report.ended:
        yield f"ended early: {report.ended}"
    count = len(report.findings)
    yield "no finding" if not count else f"{count} {'finding' if count == 1 else 'findings'}"
