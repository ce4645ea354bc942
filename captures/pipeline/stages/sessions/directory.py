"""The queue managers at addresses, learned in advance from all handshakes.

Each packet uses only what was known by then. Connections are judged separately, but an address that one handshake has
shown identifies the endpoints of other connections. There are few addresses and many packets, so every stage gets the
whole directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sessions.checker import SessionChecker
from mqproto.captures.decode.sessions.connections import Addresses, Connections, Origins
from mqproto.captures.decode.sight import Kind
from mqproto.captures.net.streams import MSMQ_PORT
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.stages.facts import SESSION_COLUMNS, session_facts
from mqproto.captures.pipeline.tables.lists import key_of, key_text, mapped_texts, values
from mqproto.wire import NULL_GUID, Guid, guid_from_text

HANDSHAKE_COLUMNS: Final = SESSION_COLUMNS
HANDSHAKE: Final = (str(Kind.ESTABLISH_CONNECTION), str(Kind.CONNECTION_PARAMETERS))
ORIGIN_COLUMNS: Final = ("series", "source_address", "source_port", "source_manager", "hop_count")
INTRODUCTION_LIMIT: Final = 65_536
"""The maximum number of introductions learned from one series. Further ones are ignored, so that a stranger cannot fill
the memory.
"""


class FirstHop(NamedTuple):
    """The endpoint from which a message left its source, together with that source."""

    series: str
    address: str
    port: int
    manager: str


class Introduction(NamedTuple):
    """What was new in a handshake, and the number of the packet that completed it."""

    number: int
    client: Endpoint
    client_guid: Guid
    server: Endpoint
    server_guid: Guid


class Directory(NamedTuple):
    """The known addresses.

    by_series: for each series, what becomes known in it, in the order of packets.
    """

    by_series: dict[str, list[Introduction]]

    def of(self, series: str) -> list[Introduction]:
        """Return everything that becomes known while a series is read."""
        return self.by_series.get(series, [])


class Learners:
    """Learns from handshakes. Its state can be kept, so that later runs continue with it."""

    def __init__(self) -> None:
        self._learners: dict[str, _Learner] = {}

    def learn(self, handshakes: Iterable[pa.RecordBatch]) -> None:
        """Learn from handshakes.

        Args:
            handshakes: the packets of all series whose kinds are in HANDSHAKE, with HANDSHAKE_COLUMNS. Those of each
                series are in the order of row_id.
        """
        for batch in handshakes:
            for series, facts in zip(values(batch, "series"), session_facts(batch), strict=True):
                if series not in self._learners:
                    self._learners[series] = _Learner()
                self._learners[series].number = facts.number
                self._learners[series].checker.take(facts)

    def directory(self) -> Directory:
        """Return everything that has been learned."""
        return Directory({series: list(each.introductions) for series, each in self._learners.items()})


class _Learner(Addresses):
    """Remembers each new introduction, and the packet that brought it."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.introductions: list[Introduction] = []
        self.checker = SessionChecker(Connections(Names(), self))

    def learn(self, client: Endpoint, client_guid: Guid, server: Endpoint, server_guid: Guid) -> bool:
        if len(self.introductions) >= INTRODUCTION_LIMIT:
            return False
        news = super().learn(client, client_guid, server, server_guid)
        if news:
            self.introductions.append(Introduction(self.number, client, client_guid, server, server_guid))
        return news

    def bound(self) -> None:
        """Do nothing, because `learn` limits the introductions."""


class Remembered(Addresses):
    """What handshakes have shown up to the current packet.

    Attributes:
        introductions: all introductions of the series; a later run has these and more.
    """

    def __init__(self, introductions: list[Introduction]) -> None:
        super().__init__()
        self.introductions = introductions
        self._next = 0

    def advance(self, number: int) -> None:
        """Move on to the packet with this number."""
        self.conflict = ""
        while self._next < len(self.introductions) and self.introductions[self._next].number <= number:
            introduction = self.introductions[self._next]
            super().learn(*introduction[1:])
            if introduction.number != number:
                self.conflict = ""
            self._next += 1

    def learn(self, client: Endpoint, client_guid: Guid, server: Endpoint, server_guid: Guid) -> bool:
        """Do nothing and return False, because every handshake has been learned in advance."""
        return False

    def bound(self) -> None:
        """Do nothing, because no address is forgotten."""


def first_hops(packets: pa.RecordBatch) -> set[FirstHop]:
    """Return the endpoints from which messages left their sources, each with its source.

    There are no repetitions.

    Args:
        packets: rows with ORIGIN_COLUMNS.
    """
    rows = packets.select(ORIGIN_COLUMNS).filter(pc.equal(packets.column("hop_count"), 0))
    rows = pa.Table.from_batches([rows]).group_by(list(ORIGIN_COLUMNS)).aggregate([])
    columns = (rows[name].to_pylist() for name in ORIGIN_COLUMNS[:4])
    return {FirstHop(*row) for row in zip(*columns, strict=True) if row[3] is not None}


def origins_of(every: Iterable[FirstHop], directory: Directory) -> dict[str, Origins]:
    """Return, for each series, the queue managers at endpoints, including those without a handshake."""
    found: dict[str, Origins] = {}
    for series, introductions in directory.by_series.items():
        for each in introductions:
            for end, guid in ((each.client, each.client_guid), (each.server, each.server_guid)):
                if guid != NULL_GUID:
                    found.setdefault(series, Origins()).learn(end, guid, told=True)
    for series, address, port, manager in sorted(every):
        found.setdefault(series, Origins()).learn(Endpoint(address, port), guid_from_text(manager))
    return found


def resolved(hops: Sequence[pa.Array], origins: Origins | None) -> Sequence[pa.Array]:
    """Return the two columns of RELATIONS with the keys at both ends of hops, resolved.

    This does the same as `Origins.resolve_hop` does for one hop.
    """
    if origins is None:
        return hops
    now = [mapped_texts(each, lambda text: key_text(origins.resolve(key_of(text)))) for each in hops]
    is_one = pc.fill_null(pc.equal(*now), fill_value=False)
    return [pc.if_else(is_one, *each) for each in zip(hops, now, strict=True)]


def labels(
    names: Names, directory: Directory, origins: Mapping[str, Origins] | None = None
) -> Callable[[str], str]:
    """Return a function that gives the label of a queue manager from its key in RELATIONS.

    The label is the queue manager's name, or the address at which it listens.
    """
    every = Addresses()
    for known in (origins or {}).values():
        for key, guid in known.everyone():
            host, _, port = key.rpartition(":")
            if port == str(MSMQ_PORT):
                every.listening[Endpoint(host.strip("[]"), MSMQ_PORT)] = guid
            else:
                every.hosts[key] = guid
    for found in directory.by_series.values():
        for each in found:
            every.learn(*each[1:])
    connections = Connections(names, every)

    @cache
    def label(text: str) -> str:
        key = key_of(text)
        if not isinstance(key, str):
            return connections.label(key)
        host, _, port = key.rpartition(":")
        if host and port.isdecimal() and (":" not in host or host.endswith("]")):
            return names.endpoint(Endpoint(host.strip("[]"), int(port)))
        return names.hosts.get(key, key)

    return label
