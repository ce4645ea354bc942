"""Sessions: what each packet is to its session, the sessions themselves, and what is wrong with them.

The rules are `captures.decode.sessions`'. All packets of a connection come to one stage, in the order of row_id.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from captures.decode.connections import CONNECTION_LIMIT, Connection, Connections, Half, Sent, Stage
from captures.decode.facts import SessionFacts
from captures.decode.findings import Severity
from captures.decode.names import Names
from captures.decode.sessions import SessionChecker, SessionView
from captures.decode.sight import Kind
from captures.pipeline.stages.directory import Directory, Remembered
from captures.pipeline.stages.facts import SESSION_COLUMNS, endpoints, session_facts
from captures.pipeline.stages.findings import finding_row
from captures.pipeline.stages.rows import Batches, batches_of, key_text, mapped, queue_of, values
from captures.pipeline.stages.schema import FINDINGS, INTEGER, RELATIONS, SHORT, TEXT
from mqproto.wire import guid_from_text

COLUMNS: Final = (
    *SESSION_COLUMNS,
    "file",
    "frame",
    "file_offset",
    "size_bytes",
    "queue",
    "destination_manager",
)
"""What this stage reads of packets."""
KEY: Final = ("series", "connection")
"""Packets that are alike in these come to one stage."""
WAITING_LIMIT: Final = 262_144
"""Of so many messages at a time the acknowledgments are waited for; with more, their rows go out without."""
SESSIONS: Final = pa.schema(
    [
        ("series", TEXT),
        ("row_id", INTEGER),
        ("file", TEXT),
        ("frame", INTEGER),
        ("file_offset", INTEGER),
        ("connection", INTEGER),
        ("interface", SHORT),
        ("client_address", TEXT),
        ("client_port", SHORT),
        ("server_address", TEXT),
        ("server_port", SHORT),
        ("client_key", TEXT),
        ("server_key", TEXT),
        ("client", TEXT),
        ("server", TEXT),
        ("first_ns", INTEGER),
        ("opened_ns", INTEGER),
        ("last_ns", INTEGER),
        ("handshake", TEXT),
        ("state", TEXT),
        ("recoverable_ack_timeout_ms", INTEGER),
        ("ack_timeout_ms", INTEGER),
        *(
            (f"{end}_{name}", INTEGER)
            for end in ("client", "server")
            for name in (
                "window",
                "packets",
                "bytes",
                "messages",
                "session_acks",
                "unacknowledged",
                "unsaved",
                "missing_bytes",
                "lossy_since",
            )
        ),
        ("faults", INTEGER),
        ("notes", INTEGER),
    ]
)
"""A connection as one interface saw it, and its session; row_id, file, frame and file_offset are of its first packet.

    client_key, server_key: as from_key of RELATIONS; client, server: names, as PacketRow's source and destination.
    first_ns, last_ns: of its first and last packet.
    opened_ns: when the handshake was complete, if the capture shows that.
    handshake: how far it came: nothing, asked, granted, proposed, open, refused.
    state: at the end: as handshake, or `unknown` where the capture lacks something or somebody was out of turn.
    *_window: the largest that the end has announced. *_session_acks: SessionHeaders, alone or riding.
    *_unacknowledged, *_unsaved: its messages that had no answer at the end.
    *_lossy_since: the number of its first packet before which the capture lacks bytes.
    faults, notes: findings about the session itself.
"""

SCHEMAS: Final = {"relations": RELATIONS, "sessions": SESSIONS, "findings": FINDINGS}
RANK: Final = 0
"""Findings about the session come first among those of a packet."""

Row = tuple[Any, ...]


@dataclass(slots=True)
class _Count:
    """What one end has sent."""

    packets: int = 0
    size_bytes: int = 0
    messages: int = 0
    session_acks: int = 0
    missing_bytes: int = 0
    waiting: deque[tuple[Row, Sent, str | None]] = field(default_factory=deque)


@dataclass(slots=True)
class _Session:
    """One connection as one interface saw it.

    place: row_id, file, frame and file_offset of its first packet.
    """

    connection: Connection
    number: int
    interface: int
    place: Row
    first_ns: int
    last_ns: int = 0
    opened_ns: int | None = None
    reached: Stage = Stage.NOTHING
    client: _Count = field(default_factory=_Count)
    server: _Count = field(default_factory=_Count)
    severities: dict[Severity, int] = field(default_factory=lambda: dict.fromkeys(Severity, 0))


class _Series:
    """What is known of one series."""

    def __init__(self, names: Names, remembered: Remembered) -> None:
        self.addresses = remembered
        self.connections = Connections(names, remembered)
        self.checker = SessionChecker(self.connections)
        self.sessions: OrderedDict[tuple[int, int], _Session] = OrderedDict()


class SessionStage:
    """Packets in, with COLUMNS; out come tables by SCHEMAS.

    Args:
        names: what queue managers are called.
        directory: what `directory.learn` has made of all handshakes.
    """

    def __init__(self, names: Names, directory: Directory) -> None:
        self._names = names
        self._directory = directory
        self._series: dict[str, _Series] = {}
        self._waiting_count = 0
        self._out: dict[str, list[Row]] = defaultdict(list)

    def take(self, batch: pa.RecordBatch) -> Batches:
        """The next packets."""
        has_session = pc.is_valid(batch.column("connection"))
        self._add_pings(batch.filter(pc.invert(has_session)))
        batch = batch.filter(has_session)
        rows = zip(
            session_facts(batch),
            values(batch, "series"),
            values(batch, "row_id"),
            values(batch, "file"),
            values(batch, "frame"),
            values(batch, "file_offset"),
            values(batch, "size_bytes"),
            mapped(batch, "queue", queue_of),
            mapped(batch, "destination_manager", guid_from_text),
            strict=True,
        )
        for facts, name, row_id, *place, size_bytes, queue, manager in rows:
            series = self._series.get(name)
            if series is None:
                remembered = Remembered(self._directory.of(name))
                series = self._series[name] = _Series(self._names, remembered)
            series.addresses.advance(facts.number)
            view = series.checker.take(facts)
            queue_name = None if manager is None else self._names.queue(queue, manager)
            self._add(name, series, row_id, place, size_bytes, facts, view, queue_name)
        return self._taken()

    def finish(self, lossless: Callable[[str], bool]) -> Batches:
        """What there is to say at the end.

        Args:
            lossless: whether a series has no gap at all; else what it lacks may explain a breach, which is a note then.
        """
        for name, series in self._series.items():
            for rank, finding in enumerate(series.checker.finish(lossless=lossless(name))):
                self._out["findings"].append(finding_row(name, None, RANK + rank, finding))
            for session in series.sessions.values():
                self._close(name, session)
        self._series.clear()
        return self._taken()

    def _taken(self) -> Batches:
        batches = batches_of(SCHEMAS, self._out)
        self._out.clear()
        return batches

    def _add_pings(self, batch: pa.RecordBatch) -> None:
        """Pings cross between hosts, outside of sessions."""
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
        row_id: int,
        place: Sequence[Any],
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
            session = _Session(connection, *key, (row_id, *place), facts.time_ns)
            series.sessions[key] = session
            if len(series.sessions) > CONNECTION_LIMIT:
                self._close(name, series.sessions.popitem(last=False)[1])
        from_client = view.half is connection.client
        session.last_ns = facts.time_ns
        _advance(session, facts)
        count, other = (session.client, session.server) if from_client else (session.server, session.client)
        count.packets += 1
        count.size_bytes += size_bytes
        count.messages += facts.recoverable is not None
        count.session_acks += facts.header is not None
        count.missing_bytes += facts.missing_bytes
        for rank, finding in enumerate(view.findings):
            session.severities[finding.severity] += 1
            self._out["findings"].append(finding_row(name, row_id, RANK + rank, finding))
        sent = view.sent
        row = (
            name,
            row_id,
            view.half.label,
            view.other.label,
            *map(key_text, view.half.hop),
            from_client,
            None if sent is None else sent.count,
            None if sent is None else sent.recoverable_count,
            *_ends(view.received),
            *_ends(view.saved),
        )
        if sent is None or sent.count is None:
            self._out["relations"].append((*row, None, None, None, queue_name))
        else:
            count.waiting.append((row, sent, queue_name))
            self._waiting_count += 1
            if self._waiting_count > WAITING_LIMIT:
                for each in self._series.values():
                    for waiting in each.sessions.values():
                        self._release(waiting.client, everything=True)
                        self._release(waiting.server, everything=True)
        if facts.header is not None:
            self._release(other)

    def _release(self, count: _Count, *, everything: bool = False) -> None:
        """Rows of messages of which nothing more will be said."""
        waiting = count.waiting
        while waiting and (everything or _is_settled(waiting[0][1])):
            row, sent, queue_name = waiting.popleft()
            self._waiting_count -= 1
            self._out["relations"].append(
                (*row, sent.acknowledged_by, sent.acknowledged_ns, sent.saved_by, queue_name)
            )

    def _close(self, name: str, session: _Session) -> None:
        """A session is over, as far as the capture goes."""
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
                session.reached.name.lower(),
                connection.stage.name.lower(),
                *timeouts_ms,
                *_counted(client, session.client),
                *_counted(server, session.server),
                session.severities[Severity.FAULT],
                session.severities[Severity.NOTE],
            )
        )
        self._release(session.client, everything=True)
        self._release(session.server, everything=True)


_NOTHING: Final = (None,) * (len(RELATIONS) - 6)


def _advance(session: _Session, facts: SessionFacts) -> None:
    """How far the handshake has come, whatever is lost later."""
    stage = session.connection.stage
    if stage is not Stage.UNKNOWN and stage > session.reached:
        session.reached = stage
        if stage is Stage.OPEN and facts.kind is Kind.CONNECTION_PARAMETERS:
            session.opened_ns = facts.time_ns


def _is_settled(sent: Sent) -> bool:
    """Whether all is known that acknowledgments will say of a message."""
    return sent.acknowledged_by is not None and (sent.recoverable_count is None or sent.saved_by is not None)


def _ends(acknowledged: Sequence[Sent]) -> tuple[list[int] | None, int | None]:
    if not acknowledged:
        return None, None
    return [acknowledged[0].packet, acknowledged[-1].packet], len(acknowledged)


def _counted(half: Half, count: _Count) -> Row:
    unsaved = sum(sent.saved_by is None for _, sent, _ in count.waiting if sent.recoverable_count is not None)
    return (
        half.window,
        count.packets,
        count.size_bytes,
        count.messages,
        count.session_acks,
        sum(sent.acknowledged_by is None for _, sent, _ in count.waiting),
        unsaved,
        count.missing_bytes,
        half.lossy_since,
    )
