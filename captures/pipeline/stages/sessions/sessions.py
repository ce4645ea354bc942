"""Sessions: the relation of each packet to its session, the sessions themselves, and their faults.

The rules are in `mqproto.captures.decode.sessions`. All packets of a connection come to the same stage, in the order of
row_id.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.decode.facts import SessionFacts
from mqproto.captures.decode.findings import Severity
from mqproto.captures.decode.names import Names
from mqproto.captures.decode.sessions.checker import SessionChecker, SessionView
from mqproto.captures.decode.sessions.connections import CONNECTION_LIMIT, Connection, Connections, Stage
from mqproto.captures.decode.sessions.half import Half, Sent
from mqproto.captures.decode.sight import Kind
from mqproto.captures.decode.ways import EVER, Hole, Sending, begins
from mqproto.captures.net.direction import Ending
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.stages.facts import SESSION_COLUMNS, endpoints, session_facts
from mqproto.captures.pipeline.stages.schema import BEGUN, FINDINGS, RELATIONS, finding_row
from mqproto.captures.pipeline.stages.sessions import steady
from mqproto.captures.pipeline.stages.sessions.directory import Directory, Remembered
from mqproto.captures.pipeline.stages.sessions.relations import is_from, relations_of
from mqproto.captures.pipeline.stages.sessions.steady import Packets
from mqproto.captures.pipeline.tables.lists import Batches, batches_of, codes, key_text, queue_of, values
from mqproto.captures.pipeline.tables.schemas import sessions as schemas
from mqproto.captures.pipeline.tables.schemas.columns import CODED
from mqproto.wire import guid_from_text

COLUMNS: Final = (
    *SESSION_COLUMNS,
    *("file", "frame", "file_offset", "queue", "destination_manager"),
)
"""The columns that this stage reads from packets."""
KEY: Final = ("series", "connection")
"""The key of packets: those with the same values in these columns come to the same stage."""
TOGETHER: Final = (
    "series",
    "connection",
    "interface",
    "row_id",
    "source_address",
    "source_port",
    "queue_name",
)
ENDED: Final = (
    *("series", "connection", "interface", "source_address", "source_port"),
    *("ending", "sent_bytes", "came_bytes"),
)
"""The columns that this stage reads from the table of streams."""
WAITING_LIMIT: Final = 262_144
"""The maximum number of messages whose rows wait for acknowledgments; beyond it, rows are written without them."""
SESSIONS: Final = schemas.SESSIONS.schema
SCHEMAS: Final = {"relations": RELATIONS, "sessions": SESSIONS, "findings": FINDINGS}
RANK: Final = 0
"""The rank of findings about the session, which come first among the findings about a packet."""

Row = tuple[Any, ...]


@dataclass(slots=True)
class _Count:
    """Counts of the packets that one end has sent.

    waiting: the messages whose acknowledgments may still come, each with its row and the name of its queue.
    """

    packets: int = 0
    size_bytes: int = 0
    messages: int = 0
    session_acks: int = 0
    missing_bytes: int = 0
    sending: Sending = field(default_factory=Sending)
    ending: str = Ending.OPEN.value
    waiting: dict[Sent, tuple[Row, str | None]] = field(default_factory=dict)


@dataclass(slots=True)
class _Session:
    """One connection as seen by one interface.

    place: row_id, file, frame and file_offset of its first packet.
    """

    connection: Connection
    number: int
    interface: int
    place: Row
    first_ns: int
    begun: bool
    last_ns: int = 0
    newest_ns: int = EVER
    skew_ns: int = 0
    opened_ns: int | None = None
    reached: Stage = Stage.NOTHING
    client: _Count = field(default_factory=_Count)
    server: _Count = field(default_factory=_Count)
    severities: dict[Severity, int] = field(default_factory=lambda: dict.fromkeys(Severity, 0))


class _Series:
    """The known facts about one series."""

    def __init__(self, names: Names, remembered: Remembered) -> None:
        self.addresses = remembered
        self.connections = Connections(names, remembered)
        self.checker = SessionChecker(self.connections)
        self.sessions: OrderedDict[tuple[int, int], _Session] = OrderedDict()


class SessionStage:
    """Takes packets with COLUMNS, and returns the tables in SCHEMAS.

    Args:
        names: the names of queue managers.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._directory = Directory({})
        self._series: dict[str, _Series] = {}
        self._waiting_count = 0
        self._steady: list[pa.RecordBatch] = []
        self._out: dict[str, list[Row]] = defaultdict(list)

    def know(self, directory: Directory) -> None:
        """Give the stage a directory that covers all handshakes among its packets."""
        self._directory = directory
        for name, series in self._series.items():
            series.addresses.introductions = directory.of(name)

    def end(self, streams: pa.RecordBatch) -> None:
        """Take the endings of streams whose packets have all been taken.

        Args:
            streams: rows with ENDED.
        """
        for name, connection, interface, *source, ending, sent_bytes, came_bytes in zip(
            *(values(streams, name) for name in ENDED), strict=True
        ):
            series = self._series.get(name)
            session = None if series is None else series.sessions.get((connection, interface))
            if session is not None:
                half, _ = session.connection.halves(Endpoint(*source))
                count = session.client if half is session.connection.client else session.server
                count.ending = ending
                count.sending.end(half.end, sent_bytes, came_bytes)

    def part(self, before_ns: int) -> Batches:
        """Close the sessions whose ends have been silent since `before_ns`, as if they had disconnected."""
        for name, series in self._series.items():
            for key in [key for key, session in series.sessions.items() if session.last_ns < before_ns]:
                self._close(name, series.sessions.pop(key))
        return self._taken()

    def take(self, batch: pa.RecordBatch) -> Batches:
        """Take the next packets."""
        has_session = pc.is_valid(batch.column("connection"))
        self._add_pings(batch.filter(pc.invert(has_session)))
        batch = batch.filter(has_session)
        batch = batch.append_column("queue_name", self._queue_names(batch))
        packets = Packets.of(batch)
        single, together = steady.divide(batch, packets)
        one_by_one = self._one_by_one(batch.take(pa.array(single)))
        # Who is at an address is known as far as it was by then, so connections begin in the order of all rows.
        done = 0
        for rows in together:
            before = int(np.searchsorted(single, rows[0]))
            for row in islice(one_by_one, before - done):
                self._take(*row)
            done = before
            if not self._take_together(batch.select(TOGETHER).take(pa.array(rows)), packets.take(rows)):
                for place, row in enumerate(self._one_by_one(batch.take(pa.array(rows)))):
                    self._take(*row, is_next=not place)
        for row in one_by_one:
            self._take(*row)
        return self._taken()

    def _queue_names(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the name of each message's destination queue."""
        pair = codes(batch, ("queue", "destination_manager"))
        _, rows, which = np.unique(pair, return_index=True, return_inverse=True)
        some = batch.select(("queue", "destination_manager")).take(pa.array(rows))
        found = (
            None if queue is None else self._names.queue(queue_of(queue), guid_from_text(manager))
            for queue, manager in zip(*(values(some, name) for name in some.schema.names), strict=True)
        )
        return pa.array(found, CODED).take(pa.array(which))

    def _one_by_one(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Yield the packets of a batch as arguments for `_take`."""
        return zip(
            session_facts(batch),
            values(batch, "series"),
            zip(*(values(batch, name) for name in BEGUN), strict=True),
            values(batch, "size_bytes"),
            values(batch, "queue_name"),
            strict=True,
        )

    def _take(
        self,
        facts: SessionFacts,
        name: str,
        place: Row,
        size_bytes: int,
        queue_name: str | None,
        *,
        is_next: bool = True,
    ) -> None:
        """Take a packet. Later packets may have been taken before it, but none of those begins a connection.

        Args:
            is_next: whether all packets before it have been taken.
        """
        series = self._series_of(name)
        if is_next:
            series.addresses.advance(facts.number)
        self._add(name, series, place, size_bytes, facts, series.checker.take(facts), queue_name)

    def _series_of(self, name: str) -> _Series:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = _Series(self._names, Remembered(self._directory.of(name)))
        return series

    def finish(self) -> Batches:
        """Return the results that are known only at the end."""
        for name, series in self._series.items():
            for session in series.sessions.values():
                self._close(name, session)
        self._series.clear()
        return self._taken()

    def _taken(self) -> Batches:
        batches = batches_of(SCHEMAS, self._out)
        self._out.clear()
        if self._steady:
            single = [batches["relations"]] if "relations" in batches else []
            batches["relations"] = pa.concat_batches([*single, *self._steady])
            self._steady.clear()
        return batches

    def _add_pings(self, batch: pa.RecordBatch) -> None:
        """Add rows for Pings, which hosts exchange outside of sessions."""
        ends = zip(
            map(self._names.endpoint, endpoints(batch, "source")),
            map(self._names.endpoint, endpoints(batch, "destination")),
            strict=True,
        )
        for name, row_id, pair in zip(values(batch, "series"), values(batch, "row_id"), ends, strict=True):
            self._out["relations"].append((name, row_id, *pair, *pair, *_NOTHING))

    def _add(
        self,
        name: str,
        series: _Series,
        place: Row,
        size_bytes: int,
        facts: SessionFacts,
        view: SessionView,
        queue_name: str | None,
    ) -> None:
        connection = view.connection
        key = (facts.connection, facts.interface)
        session = series.sessions.get(key)
        if session is None or session.connection is not connection:
            if session is not None:
                self._close(name, session)
            session = _Session(connection, *key, place, facts.time_ns, begins(facts))
            series.sessions[key] = session
            if len(series.sessions) > CONNECTION_LIMIT:
                self._close(name, series.sessions.popitem(last=False)[1])
        from_client = view.half is connection.client
        session.last_ns = max(session.last_ns, facts.time_ns)
        if not facts.missing_bytes:
            session.skew_ns = max(session.skew_ns, session.newest_ns - facts.time_ns)
        session.newest_ns = facts.time_ns
        _advance(session, facts)
        count, other = (session.client, session.server) if from_client else (session.server, session.client)
        count.packets += 1
        count.size_bytes += size_bytes
        count.messages += facts.recoverable is not None
        count.session_acks += facts.header is not None
        count.missing_bytes += facts.missing_bytes
        count.sending.take(facts, view, begun=session.begun)
        for rank, finding in enumerate(view.findings):
            session.severities[finding.severity] += 1
            self._out["findings"].append(finding_row(name, place[0], RANK + rank, finding))
        sent = view.sent
        row = (
            name,
            place[0],
            view.half.label,
            view.other.label,
            *map(key_text, view.half.hop),
            from_client,
            None if sent is None else sent.count,
            None if sent is None else sent.recoverable_count,
            *_ends(view.received),
            *_ends(view.saved),
        )
        if sent is None:
            self._out["relations"].append((*row, None, None, None, queue_name))
        else:
            self._wait(count, row, sent, queue_name)
        for each in (count, other):
            self._answer(each, view.answered)

    def _wait(self, count: _Count, row: Row, sent: Sent, queue_name: str | None) -> None:
        """Keep the row of a message until its acknowledgments have arrived.

        If too many rows wait, write all of them.
        """
        count.waiting[sent] = (row, queue_name)
        self._waiting_count += 1
        if self._waiting_count > WAITING_LIMIT:
            for each in self._series.values():
                for waiting in each.sessions.values():
                    self._release(waiting.client)
                    self._release(waiting.server)

    def _take_together(self, batch: pa.RecordBatch, packets: Packets) -> bool:
        """Take messages and SessionAcks of one connection all at once.

        Return False if they have to be taken one by one.

        Args:
            batch: rows with TOGETHER.
        """
        name, connection, interface = (batch.column(each)[0].as_py() for each in (*KEY, "interface"))
        series = self._series_of(name)
        session = series.sessions.get((connection, interface))
        if session is None or session.connection is not series.connections.known((connection, interface)):
            return False
        if session.connection.by_port:
            return False
        from_client = is_from(batch, session.connection.client.endpoint)
        client, server = session.connection.client, session.connection.server
        asked = [(*half.unacknowledged, *half.unsaved) for half in (client, server)]
        found = steady.take(session.connection, from_client, packets)
        if found is None:
            return False
        said, still = found
        session.last_ns = max(session.last_ns, int(packets.time_ns.max()))
        steps_ns = np.diff(packets.time_ns, prepend=session.newest_ns)
        session.skew_ns = max(session.skew_ns, -int(steps_ns.min()))
        session.newest_ns = int(packets.time_ns[-1])
        counts = (session.client, from_client, asked[0]), (session.server, ~from_client, asked[1])
        for count, mine, waiting in counts:
            count.packets += int(mine.sum())
            count.size_bytes += int(packets.size_bytes[mine].sum())
            count.messages += int((packets.is_message & mine).sum())
            count.session_acks += int((packets.has_header & mine).sum())
            if mine.any():
                count.sending.last_ns = int(packets.time_ns[mine][-1])
            self._answer(count, waiting)
        relations = relations_of(batch, session.connection, from_client, said)
        waits = np.isin(np.arange(batch.num_rows), list(still))
        self._steady.append(relations.filter(pa.array(~waits)))
        for row, sent in zip(
            relations.filter(pa.array(waits)).to_pylist(),
            (still[each] for each in sorted(still)),
            strict=True,
        ):
            count = session.client if row["from_client"] else session.server
            *told, _, _, _, queue_name = row.values()
            self._wait(count, tuple(told), sent, queue_name)
        return True

    def _answer(self, count: _Count, answered: Iterable[Sent]) -> None:
        """Write the rows of messages for which no further acknowledgments can come."""
        for sent in answered:
            if sent.is_settled and sent in count.waiting:
                self._go_out(sent, *count.waiting.pop(sent))

    def _release(self, count: _Count) -> None:
        """Write the rows of all messages of one end, because nothing more will be learned about them."""
        for sent, (row, queue_name) in count.waiting.items():
            self._go_out(sent, row, queue_name)
        count.waiting.clear()

    def _go_out(self, sent: Sent, row: Row, queue_name: str | None) -> None:
        self._waiting_count -= 1
        self._out["relations"].append(
            (*row, sent.acknowledged_by, sent.acknowledged_ns, sent.saved_by, queue_name)
        )

    def _close(self, name: str, session: _Session) -> None:
        """Make the final rows of a session from what the captures show of it."""
        connection = session.connection
        client, server = connection.client, connection.server
        timeouts_ms = connection.timeouts_ms or (None, None)
        self._out["sessions"].append(
            (
                name,
                *session.place,
                session.number,
                session.interface,
                *client.endpoint,
                *server.endpoint,
                key_text(client.key),
                key_text(server.key),
                client.label,
                server.label,
                session.first_ns,
                session.opened_ns,
                session.last_ns,
                session.skew_ns,
                session.begun,
                session.reached.name.lower(),
                connection.stage.name.lower(),
                *timeouts_ms,
                *_counted(client, session.client, server),
                *_counted(server, session.server, client),
                session.severities[Severity.FAULT],
                session.severities[Severity.NOTE],
            )
        )
        self._release(session.client)
        self._release(session.server)


_NOTHING: Final = (None,) * (len(RELATIONS) - 6)


def _advance(session: _Session, facts: SessionFacts) -> None:
    """Record how far the handshake has progressed; packets lost later do not change the record."""
    stage = session.connection.stage
    if session.reached < stage <= Stage.REFUSED:
        session.reached = stage
        if stage is Stage.OPEN and facts.kind is Kind.CONNECTION_PARAMETERS:
            session.opened_ns = facts.time_ns


def _ends(acknowledged: Sequence[Sent]) -> tuple[list[int] | None, int | None]:
    if not acknowledged:
        return None, None
    return [acknowledged[0].packet, acknowledged[-1].packet], len(acknowledged)


def _counted(half: Half, count: _Count, other: Half) -> Row:
    unanswered: tuple[int | None, int | None] = (
        sum(sent.acknowledged_by is None for sent in count.waiting),
        sum(sent.saved_by is None for sent in count.waiting if sent.recoverable),
    )
    if count.messages and (half.adrift or half.stale or not other.end):
        unanswered = None, None
    packets, *holes = (
        zip(*count.sending.holes, strict=True) if count.sending.holes else [()] * len(Hole._fields)
    )
    return (
        half.window,
        count.packets,
        count.size_bytes,
        count.messages,
        count.session_acks,
        *unanswered,
        count.missing_bytes,
        packets,
        count.sending.last_ns,
        *holes,
        count.sending.snapped,
        count.sending.rest_bytes,
        count.sending.rest_came_bytes,
        count.ending,
    )
