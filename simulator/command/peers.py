"""`mqproto peers`, which shows the queue managers that are connected to a node or blocked by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from mqproto.base.errors import FormatNameError, UsageError
from mqproto.base.words import brief, counted, duration
from mqproto.neighbours.met import How
from mqproto.neighbours.peerstatus import MetStatus
from mqproto.simulator.base.program.declared import ARGUMENT, value
from mqproto.simulator.base.program.output import MISUSE, Printout, run_task
from mqproto.simulator.command.options import Commands, FirstByDefault, answered
from mqproto.wire.guid import guid_from_text, guid_text

if TYPE_CHECKING:
    from mqproto.manager.status import PeersStatus
    from mqproto.neighbours.peerstatus import PeerStatus
    from mqproto.simulator.client import Client
    from mqproto.simulator.client.live import Away
    from mqproto.simulator.node.control import Blocked, PeerFacts as PeerWish
    from mqproto.simulator.topology import Topology
    from mqproto.simulator.topology.places import Place

Refusal = UsageError | FormatNameError
"""The error with which a node refused the request; its text is the reason."""
T = TypeVar("T")


app = Commands(
    cls=FirstByDefault,
    help="Show, add and block queue managers that connect to nodes; mqproto peers [NODE] is short for mqproto peers "
    "show. For the applications that receive from a queue, see mqproto explain QUEUE.",
)
NodeArgument = Annotated[str | None, ARGUMENT, "A node; by default all running nodes.", value("[NODE]")]
PeerArgument = Annotated[str, ARGUMENT, value("NAME|GUID")]
NetworkArgument = Annotated[
    str, ARGUMENT, "Such as 10.0.0.7 or 10.0.0.0/8; for IPv6 a /64 or larger.", value("ADDRESS|NETWORK")
]


@app.command()
def show(place: Place, node: NodeArgument = None) -> Printout:
    """Show the queue managers that are or were connected to a node, and what they did. Status 1 if no node runs."""
    found = run_task(partial(peers_of, place, node))
    lines = partial(show_peers, place.topology, found, place.again)
    return Printout(as_values(place.topology, found), lines, *answered(place, found))


@app.command()
def block(
    place: Place,
    network: NetworkArgument,
    node: NodeArgument = None,
    force: Annotated[bool, "Block it even if a node of the topology connects from there."] = False,
) -> Printout:
    """Refuse connections from a network, even after restarts, and end the sessions that came from it.

    The node still sends to that network; `mqproto pause` stops that.
    """
    return _block(place, network, node, is_blocked=True, forced=force)


@app.command()
def unblock(place: Place, network: NetworkArgument, node: NodeArgument = None) -> Printout:
    """Accept connections from a network again."""
    return _block(place, network, node, is_blocked=False)


@app.command()
def add(
    place: Place,
    name: Annotated[
        str,
        ARGUMENT,
        r"A name for the peer, as in NAME\private$\orders; if only --also is given, the peer's present name or GUID.",
    ],
    node: NodeArgument = None,
    address: Annotated[str, "Its address or host name.", value("HOST")] = "",
    also: Annotated[list[str] | None, "Another address of the same machine.", value("ADDRESS")] = None,
    guid: Annotated[str | None, "Its GUID, for private format names.", value("GUID")] = None,
    probes: Annotated[bool, "Connect to it now, and ask for its GUID.", "--probe"] = False,
    keys: Annotated[
        Path | None,
        "The folder with its public keys (aes.blob, enhanced.blob, signing.cer), to encrypt messages for it.",
        value("FOLDER"),
    ] = None,
) -> Printout:
    """Add a queue manager that is not in a topology. Nodes may connect to it, and its name is valid in queue names."""
    if not address and not also:
        raise UsageError("say where it is: --address HOST, or --also ADDRESS for one that was met")
    wish = _wish_to_add(name, address, guid, keys, probes=probes)
    wish.also = also or []
    return _told(place, wish, "is added", node)


@app.command()
def remove(place: Place, name: PeerArgument, node: NodeArgument = None) -> Printout:
    """Forget a queue manager that was added or that a node has met."""
    from mqproto.simulator.node.control import PeerFacts

    return _told(place, PeerFacts(name), "is forgotten", node)


@app.command()
def move(place: Place, name: PeerArgument, node: NodeArgument = None) -> Printout:
    """Accept that a queue manager moved to the address where its GUID was last seen."""
    from mqproto.simulator.node.control import PeerFacts

    return _told(place, PeerFacts(name, has_moved=True), "has moved", node)


def _wish_to_add(name: str, address: str, guid: str | None, keys: Path | None, *, probes: bool) -> PeerWish:
    """Return the facts to add about a queue manager. If `probes` is set, ask the queue manager for its GUID."""
    from mqproto.simulator.command.probe import probe
    from mqproto.simulator.node.control import PeerFacts

    manager = b""
    if guid is not None:
        try:
            manager = guid_from_text(guid)
        except ValueError:
            raise UsageError(
                f"{guid!r} is not a GUID: write it as mqproto probe {address} shows it"
            ) from None
    if probes:
        report = run_task(partial(probe, address))
        if report.tcp.manager is None:
            raise UsageError(f"{address}: {report.tcp.detail}; add it without --probe, or name another host")
        if manager and manager != report.tcp.manager:
            raise UsageError(f"{address} presents queue manager {guid_text(report.tcp.manager)}, not {guid}")
        manager = report.tcp.manager
    files: dict[str, bytes] = {}
    if keys is not None:
        from mqproto.simulator.security.keyfiles import FORMS, PublicFiles

        files = PublicFiles(keys).read()
        if not files:
            raise UsageError(
                f"{keys}: no file there is called aes.blob, signing.cer or another such name: {', '.join(FORMS)}"
            )
    return PeerFacts(name, address, manager, keys=files)


def _told(place: Place, wish: PeerWish, done: str, node: str | None) -> Printout:
    """Tell nodes a fact about a peer, and report what they now know about the peer.

    If they forget the peer, report what they knew before.
    """
    found = run_task(partial(ask_each, place, node, lambda client: client.peer(wish)))

    from mqproto.simulator.client.live import Away

    def words(one: MetStatus | Away) -> str:
        if isinstance(one, Away):
            return one.after("knows what it did")
        return f"{_met_name(one)} {done}: {met_words(one)}"

    return _answers(place, found, words, asdict)


def _block(
    place: Place, network: str, node: str | None, *, is_blocked: bool, forced: bool = False
) -> Printout:
    async def ask(client: Client) -> Blocked:
        return await (client.block(network, forced=forced) if is_blocked else client.unblock(network))

    found = run_task(partial(ask_each, place, node, ask))
    words = partial(blocked_words, is_blocked=is_blocked)
    return _answers(place, found, words, _blocked_values)


def _answers(
    place: Place,
    found: Mapping[str, T | Refusal | Away],
    words: Callable[[T | Away], str],
    values: Callable[[T], dict[str, Any]],
) -> Printout:
    """Return each node's result for a request: an answer, a refusal, or the fact that there was no answer."""
    from mqproto.simulator.client.live import Away

    told, lines, refusals = [], [], []
    for name, one in found.items():
        if isinstance(one, Refusal):
            told.append({"node": name, "running": True, "refused": str(one)})
            refusals.append(f"{name}: {one}")
            continue
        value = {"running": one.is_running} if isinstance(one, Away) else {"running": True, **values(one)}
        told.append({"node": name, **value})
        lines.append(f"{name}: {words(one)}")
    return Printout(told, lines, *((MISUSE, refusals) if refusals else answered(place, found)))


# Asking


async def peers_of(place: Place, node: str | None) -> dict[str, PeersStatus | Away]:
    """Return the peers of all nodes, or only those of `node`.

    Raises:
        NodeUnreachable: `node` is not running.
    """
    from mqproto.simulator.client.live import ask_all

    return await ask_all(place, lambda client: client.peers(), node)


async def ask_each(
    place: Place, node: str | None, ask: Callable[[Client], Awaitable[T]]
) -> dict[str, T | Refusal | Away]:
    """Ask each node, or only `node`; return their answers or, for nodes that refused, the reasons.

    Raises:
        NodeUnreachable: `node` is not running.
    """

    from mqproto.simulator.client.live import ask_all

    async def carefully(client: Client) -> T | Refusal:
        try:
            return await ask(client)
        except (UsageError, FormatNameError) as error:
            return error

    return await ask_all(place, carefully, node)


# Showing


def as_values(topology: Topology, found: Mapping[str, PeersStatus | Away]) -> list[dict[str, Any]]:
    """Return all peers as values for programs; a queue manager of the topology also has its `node`."""
    from mqproto.simulator.client.live import Away

    values = []
    for name, status in found.items():
        value: dict[str, Any] = {"node": name, "running": True}
        if isinstance(status, Away):
            value["running"] = status.is_running
        else:
            value |= asdict(status)
            for peer in value["peers"]:
                peer["node"] = topology.manager_name(peer["manager"]) or None
        values.append(value)
    return values


def show_peers(topology: Topology, found: Mapping[str, PeersStatus | Away], options: str = "") -> None:
    """Print all peers, connected ones first.

    Args:
        options: the options that a suggested command needs to find the nodes.
    """
    for name, status in found.items():
        if not status:
            print(f"{name} is {status}")
            continue
        print(
            f"{name}: " + ("nobody has connected" if not status.peers else counted(len(status.peers), "peer"))
        )
        for peer in sorted(status.peers, key=lambda one: not (one.sessions or one.half_open)):
            print(f"  {_line(topology, peer, status)}")
        for one in status.met:
            if one.name or one.other or one.how is not How.CALLED_US:
                print(f"  {_met_name(one)}: {met_words(one, status.utc_s)}")
        for network in status.blocked:
            print(
                f"  {network} is blocked; to answer it again: mqproto peers unblock {network} {name}{options}"
            )
        if status.open_queues:
            open_queues = ", ".join(
                f"{queue} has {size:,} of {limit:,} bytes" for queue, size, limit in status.open_queues
            )
            sequences = f"{counted(status.sequences, 'sequence')} of {status.sequences_limit:,}"
            print(f"  held for strangers: {sequences}; {open_queues}")


def _met_name(one: MetStatus) -> str:
    return one.name or one.manager or one.host


def met_words(one: MetStatus, now_s: int | None = None) -> str:
    """Return a description of a queue manager that was added or that a node has met."""
    parts = [f"at {one.host}" + f" ({one.address})" * (one.address not in ("", one.host))]
    if one.also:
        parts[0] += f" and at {' and '.join(one.also)}"
    if one.name:
        parts.append(f"queue manager {one.manager}" if one.manager else "its GUID is not known yet")
    parts.append(
        {
            How.CALLED_US: "met when it called" + ", and not called from here" * (not one.is_called),
            How.WAS_CALLED: "met when it was called",
            How.ADDED: "added by an operator",
        }[one.how]
    )
    if now_s is not None and one.address:
        parts.append(f"last seen {duration(now_s - one.last_s)} ago")
    if now_s is not None and one.awaited_s > now_s:
        parts.append(f"called for answers for another {duration(one.awaited_s - now_s)}")
    if one.other:
        ago = f" {duration(now_s - one.other_s)} ago" if now_s is not None else ""
        parts.append(
            f"its GUID was met at {one.other}{ago} as well: {one.verdict or 'whether it moved is being asked'}"
        )
    return "; ".join(parts)


def _line(topology: Topology, peer: PeerStatus, status: PeersStatus) -> str:
    return f"{peer.host}: " + "; ".join(_parts(topology, peer, status))


def _parts(topology: Topology, peer: PeerStatus, status: PeersStatus) -> Iterator[str]:
    """Yield a description of each known fact about a peer."""
    here = [
        f"{count:,} {what}"
        for count, what in ((peer.sessions, "open"), (peer.half_open, "half-open"))
        if count
    ]
    last = status.utc_s - (peer.first_s if here else peer.last_s)
    yield _who(topology, peer) + ", blocked" * peer.blocked
    yield (
        f"{' and '.join(here)}, first seen {duration(last)} ago"
        if here
        else f"gone, last seen {duration(last)} ago"
    )
    if peer.opened:
        yield f"opened {peer.opened:,}"
    if peer.size_bytes:
        yield f"received {counted(peer.messages, 'message')}, {peer.size_bytes:,} bytes"
    if peer.sent_bytes:
        yield f"sent {peer.sent:,}, {peer.sent_bytes:,} bytes"
    if peer.acknowledged_s is not None:
        yield f"acknowledges after {brief(peer.acknowledged_s)}"
    if peer.round_trip_s is not None:
        yield f"round trip {brief(peer.round_trip_s)}"
    if peer.refused:
        yield f"{counted(peer.refused, 'message')} refused"
    if peer.ended:
        yield f"{counted(peer.ended, 'session')} refused or ended"
    if peer.reason:
        yield f"last for: {peer.reason}"
    held = [
        f"{counted(peer.sequences, 'sequence')}" * bool(peer.sequences),
        f"{peer.held_bytes:,} bytes behind a gap" * bool(peer.held_bytes),
        f"{counted(peer.acknowledgments, 'acknowledgment')} for it" * bool(peer.acknowledgments),
    ]
    if any(held):
        yield "held: " + ", ".join(filter(None, held))


def _who(topology: Topology, peer: PeerStatus) -> str:
    name = topology.manager_name(peer.manager) or peer.manager
    match peer.kind:
        case "neighbour":
            return name + " over TLS" * peer.tls
        case "claims":
            return f"claims to be {name}"
        case "stranger":
            return f"stranger {name}"
        case "others":
            return "further strangers"
        case _:
            return "has not said who it is"


def _blocked_values(one: Blocked) -> dict[str, Any]:
    return {"network": one.network, "sessions": one.sessions}


def blocked_words(one: Blocked | Away, *, is_blocked: bool) -> str:
    """Return a description of the result of blocking or unblocking a network."""
    from mqproto.simulator.client.live import Away

    if isinstance(one, Away):
        return one.after("does as before")
    if not is_blocked:
        return f"{one.network} is answered again"
    return f"{one.network} is blocked, and {counted(one.sessions, 'session')} ended"
