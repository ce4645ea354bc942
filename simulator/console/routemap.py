"""The route map of running nodes: its links, their traffic, and the position of everything in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import copysign
from typing import Any, Final, NamedTuple

from mqproto.base.words import brief
from mqproto.captures.drawing.placing import Point, Room, Sheet, along, bend, label_lines, placed
from mqproto.manager.status import NodeStatus, OutgoingStatus, PeersStatus
from mqproto.neighbours.peerstatus import SessionStatus
from mqproto.simulator.console.rates import Rates
from mqproto.simulator.topology import Topology
from mqproto.wire.guid import guid_text

BOX_HEIGHT: Final = 54
BOX_WIDTH: Final = 124
LINE: Final = 16
"""The additional height of a box whose name takes two lines, in units of the picture."""
CHARACTER: Final = 9.6
"""The width of a bold letter of a name in the widest of the usual fonts, in units of the picture."""
NAME_SHOWN: Final = 28
AROUND: Final = 44
"""The free space above and below the centers of nodes, in units of the picture.

A link's label fits into it.
"""
LABEL: Final = (90.0, 84.0)
"""The width and height of a label, which has the rate and the waiting messages of both directions."""
BESIDE: Final = (22, -16)
"""The offsets of a label next to a link that is steeper than 45 degrees.

The label is to the right of the link or, if there is no room, to its left.
"""
BEYOND: Final = 1e6
PARTS: Final = (0.5, 0.25, 0.75, 1 / 6, 5 / 6)
"""The places for a label, as fractions of a link's length: the middle, or others if that is taken."""
WIDE: Final = Sheet(width=1_200, edge=24, side=190, row=172, dense_row=96, column=300)
NARROW: Final = Sheet(width=300, edge=16, side=300, row=164, dense_row=164, column=0, abreast=1)
"""The dimensions of the map for narrow screens, in pixels.

A map that needs less width is made narrower.
"""


class Pair(NamedTuple):
    """Two nodes that exchange messages."""

    from_key: str
    to_key: str
    messages: int = 1


def pairs_of(topology: Topology) -> list[Pair]:
    """Return the links of a topology, or, if it has sites, all pairs of nodes that may exchange messages."""
    if topology.links:
        return [Pair(link.first, link.second) for link in topology.links]
    found = {
        tuple(sorted((frm, topology.next_hop(frm, to)), key=list(topology.nodes).index))
        for one, other in combinations(topology.nodes, 2)
        for frm, to in ((one, other), (other, one))
    }
    return [Pair(one, other) for one, other in sorted(found)]


def drawn_map(topology: Topology, pairs: list[Pair]) -> dict[str, Any]:
    """Return the boxes and paths of the map, both for a wide screen and for a narrow one."""
    return {"wide": _drawn(topology, pairs, WIDE), "narrow": _drawn(topology, pairs, NARROW)}


def _drawn(topology: Topology, pairs: list[Pair], sheet: Sheet) -> dict[str, Any]:
    places, _ = placed(pairs, sheet, topology.nodes)
    left = min(x for x, _ in places.values()) - sheet.side / 2
    right = max(x for x, _ in places.values()) + sheet.side / 2
    top = min(y for _, y in places.values()) - AROUND
    height = max(y for _, y in places.values()) + AROUND - top
    places = {name: (x - left, y - top) for name, (x, y) in places.items()}
    nodes: list[dict[str, Any]] = []
    for name, (x, y) in places.items():
        lines = label_lines(name if len(name) <= NAME_SHOWN else f"{name[: NAME_SHOWN - 1]}…")
        width = max(BOX_WIDTH, CHARACTER * max(map(len, lines)) + 24)
        tall = BOX_HEIGHT + LINE * (len(lines) - 1)
        nodes.append({"name": name, "x": x, "y": y, "width": width, "height": tall, "lines": lines})
    beyond = Room(-BEYOND / 2, 0, BEYOND, 2 * BEYOND)
    taken = [beyond, *(Room(node["x"], node["y"], node["width"], node["height"]) for node in nodes)]
    ways = [(places[pair.from_key], places[pair.to_key]) for pair in pairs]
    bends = [bend(start, end, places.values(), is_returned=False) for start, end in ways]
    links: dict[int, dict[str, Any]] = {}
    # Those that are straight have but one good place.
    for at in sorted(range(len(pairs)), key=lambda at: bends[at] != 0):
        (start, end), bent = ways[at], bends[at]
        upright = abs(end[0] - start[0]) < abs(end[1] - start[1])
        spots = [
            (along(start, end, bent, part), beside)
            for part in PARTS
            for beside in (BESIDE if upright else (0,))
        ]
        free = (spot for spot in spots if not any(map(label_room(*spot).meets, taken)))
        middle, beside = next(free, spots[0])
        taken.append(label_room(middle, beside))
        links[at] = {
            "key": key_of(*pairs[at][:2]),
            "between": list(pairs[at][:2]),
            "path": _path(start, end, bent),
            "middle": middle,
            "beside": beside,
            "upright": upright,
        }
    return {
        "width": right - left,
        "height": height,
        "nodes": nodes,
        "links": [links[at] for at in range(len(pairs))],
    }


def label_room(middle: Point, beside: int) -> Room:
    """Return the space that is taken by a label on a link or next to it."""
    width, height = LABEL
    aside = beside + copysign(width / 2, beside) if beside else 0
    return Room(middle[0] + aside, middle[1], width, height)


def _path(start: Point, end: Point, bent: float) -> str:
    """Return an SVG path: a quadratic Bézier curve.

    The curve's middle is half as far from the straight line as its control point is.
    """
    (x, y), (to_x, to_y) = start, end
    handle = x + (to_x - x) / 2 - (to_y - y) * bent, y + (to_y - y) / 2 + (to_x - x) * bent
    return f"M{x:g} {y:g}Q{handle[0]:g} {handle[1]:g} {to_x:g} {to_y:g}"


def key_of(one: str, other: str) -> str:
    """Return the name of a link, in the form of `mqproto cut`."""
    return f"{one}-{other}"


def link_facts(
    topology: Topology,
    pairs: Iterable[Pair],
    said: Mapping[str, tuple[NodeStatus, PeersStatus]],
    broken: Mapping[str, str],
    rates: Rates,
    now_s: float,
) -> list[dict[str, Any]]:
    """Return the facts about each link, with its traffic in both directions.

    Args:
        said: the statuses that running nodes returned, keyed by the nodes' names.
        broken: the faults of links (`cut`, `stall` or `slow`), keyed by `key_of`.
    """
    found = []
    for one, other, _ in pairs:
        ways = [_way(topology, frm, to, said, rates, now_s) for frm, to in ((one, other), (other, one))]
        found.append(
            {
                "key": key_of(one, other),
                "between": [one, other],
                "broken": broken.get(key_of(one, other), ""),
                "open": any(way["session"] for way in ways),
                "ways": ways,
            }
        )
    return found


def _way(
    topology: Topology,
    frm: str,
    to: str,
    said: Mapping[str, tuple[NodeStatus, PeersStatus]],
    rates: Rates,
    now_s: float,
) -> dict[str, Any]:
    there = guid_text(topology.nodes[to].guid)
    here = guid_text(topology.nodes[frm].guid)
    way: dict[str, Any] = {"from": frm, "to": to, "session": False, "window": 0, "unacknowledged": 0}
    way |= {"waiting": 0, "in_flight": 0, "resent": 0, "why": "", **_times(())}
    crossed = 0
    if frm in said:
        status, peers = said[frm]
        own = [session for session in status.sessions if session.manager == there]
        way |= _times(own)
        for session in own:
            way["session"] = True
            way["window"] += session.window
            way["unacknowledged"] += session.unacknowledged
        for queue in status.outgoing:
            if _leads_to(topology, queue, there, to):
                way["waiting"] += queue.waiting
                way["in_flight"] += queue.in_flight
                way["resent"] += queue.resent
                way["why"] = way["why"] or (queue.last_failure if queue.waiting else "")
        crossed = sum(peer.sent for peer in peers.peers if peer.manager == there)
    elif to in said:
        crossed = sum(peer.messages for peer in said[to][1].peers if peer.manager == here)
    return way | {"crossed": crossed, "rate": rates.of((frm, to), crossed, now_s)}


def _times(sessions: Iterable[SessionStatus]) -> dict[str, str]:
    """Return, in words, how long acknowledgments and TCP round trips take.

    If there are several sessions, the longest times are returned.
    """
    acknowledged, round_trips = [0.0], [0.0]
    for one in sessions:
        acknowledged.append(one.acknowledged_s or 0.0)
        round_trips.append(one.round_trip_s or 0.0)
    return {
        "acknowledged": brief(max(acknowledged) or None),
        "round_trip": brief(max(round_trips) or None),
    }


def other_sessions(
    topology: Topology, said: Mapping[str, tuple[NodeStatus, PeersStatus]], rates: Rates, now_s: float
) -> Iterator[dict[str, Any]]:
    """Yield the sessions with peers outside the topology, in the form of `link_facts`."""
    for name, (status, peers) in said.items():
        for session in status.sessions:
            if topology.manager_name(session.manager):
                continue
            sent = [
                peer for peer in peers.peers if (peer.manager, peer.host) == (session.manager, session.host)
            ]
            crossed = sum(peer.sent for peer in sent)
            yield {
                "from": name,
                "to": f"{session.host} ({session.manager})",
                "session": True,
                "window": session.window,
                "unacknowledged": session.unacknowledged,
                **_times([session]),
                "waiting": 0,
                "in_flight": 0,
                "resent": 0,
                "why": "",
                "crossed": crossed,
                "rate": rates.of((name, session.host, session.manager), crossed, now_s),
            }


def _leads_to(topology: Topology, queue: OutgoingStatus, manager: str, name: str) -> bool:
    """Return whether a queue's next hop is this queue manager.

    Until its GUID is known, the address decides.
    """
    if queue.next_manager:
        return queue.next_manager == manager
    host, _, port = queue.next_hop.rpartition(":")
    return (host, port) in ((host, str(port)) for host, port in topology.nodes[name].addresses)
