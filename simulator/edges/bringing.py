"""Brings what gateways kept in a document history into the store of their node, which keeps it from now on.

    completed ids, their fingerprints     rows with the MessageIDs and the ages that they had
    started ids                           rows, if the node has the gateway's ticket for them; else nothing
    the ends of their messages            ends of these rows, also those that wait in the queue for confirmations
    armed and due callbacks               rows that are owed

The node does not run meanwhile. Rows are written by their MessageIDs, so what was killed halfway is repeated as a
whole; the history forgets them last. Acknowledgments that are on their way come to the old queue's number, which the
node takes for its address from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, or_, select

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.client import MessageId
from mqproto.simulator.edges.gateway.message import KeptFacts
from mqproto.simulator.edges.history.databases import engine_for, parsed
from mqproto.simulator.edges.history.documents import Documents
from mqproto.simulator.edges.history.forgetting import GATEWAY
from mqproto.simulator.edges.history.tables import documents, hooks, layouts
from mqproto.simulator.edges.trail import CONFIRMATIONS, ENDS, OUTCOMES
from mqproto.simulator.node.control import Operation
from mqproto.simulator.storage import Store
from mqproto.simulator.topology import Node
from mqproto.turn.effects import OutcomeRow, PostedChange, PostedRow, QueueKind, Writes
from mqproto.turn.posted import POSTED_ALIAS, RAN_S
from mqproto.wire import MessageClass, decode_message
from mqproto.wire.glance import correlated
from mqproto.wire.guid import Guid, guid_from_text, guid_text

OWN_QUEUES: Final = "own-queues"
"""The scope of the queues in which gateways got confirmations; the keys are their format names."""
OWNER: Final = "gateway "
"""The beginning of the name of a gateway in a history; the GUID of its journal follows."""
BATCH: Final = 500


class Ticket(msgspec.Struct, array_like=True):
    """What a gateway had its node keep with the outcome of a message."""

    queue: str
    key: str
    fingerprint: str
    admin_queue: str = ""
    callback: str = ""
    given: str = ""


class TaggedSent(msgspec.Struct, array_like=True):
    """The outcome of a request with a ticket."""

    runs: list[tuple[int, int]]
    tag: bytes = b""


class Brought(NamedTuple):
    """The number of ids that a store has got, and of those that were begun and that its node never had."""

    ids: int
    absent: int


def bring(url: str, path: Path, node: Node) -> Brought:
    """Bring the ids of a history into the store of a node that does not run.

    Raises:
        UsageError: the URL is not valid, or gateways of other nodes share the history.
        HistoryError: the history is not available.
        StoreError: the store is not available, or its node runs.
    """
    Documents(url, None).close()  # It has the newest layout from then on.
    engine = engine_for(parsed(url))
    try:
        with Store(path, node.guid) as store, engine.connect() as db:
            _see_that_it_is_this_nodes(db, node)
            counters, outcomes = _kept(store)
            ran_s = counters.get(RAN_S, 1)
            found = _GatewayIds(db, node, outcomes, ran_s)
            ended = [*found.confirmed(store)]
            ids = 0
            rows = found.rows()
            while batch := [*islice(rows, BATCH)]:
                store.commit(Writes(posted=batch))
                ids += len(batch)
            store.commit(Writes(changes=ended, counters=found.aliases() | {RAN_S: ran_s}))
            store.settle()
        with engine.begin() as db:
            _forget(db)
    finally:
        engine.dispose()
    return Brought(ids, found.absent)


def _see_that_it_is_this_nodes(db: Connection, node: Node) -> None:
    own = [documents.c.scope.startswith(GATEWAY), documents.c.entry == Entry.COMPLETED]
    for (outcome,) in db.execute(select(documents.c.outcome).where(*own)):
        accepted = MessageId.parse(OUTCOMES.decode(outcome).id)
        if accepted is not None and accepted.manager != node.guid:
            raise UsageError(
                f"gateways of several nodes share this history: {guid_text(accepted.manager)} has messages of it, too; "
                "ids that are shared stay where they are: start the nodes with its URL in [node.NAME.gateway] history"
            )


def _kept(store: Store) -> tuple[dict[str, int], list[OutcomeRow]]:
    state = store.load()
    return state.counters, state.outcomes


class _GatewayIds:
    """What a history has of a node's messages."""

    def __init__(self, db: Connection, node: Node, outcomes: Iterable[OutcomeRow], ran_s: int) -> None:
        self._db, self._node, self._ran_s = db, node, ran_s
        self._now_s = float(db.execute(select(layouts.c.now_s)).scalar_one())
        self._taken = dict(_tickets(outcomes))
        self.absent = 0

    def rows(self) -> Iterator[PostedRow]:
        """Yield the row of each id."""
        columns = documents.c
        asked = select(
            columns.scope, columns.key, columns.entry, columns.owner, columns.outcome, columns.aged_s
        )
        for scope, key, entry, owner, outcome, aged_s in self._db.execute(
            asked.where(columns.scope.startswith(GATEWAY)).order_by(columns.aged_s)
        ).all():
            queue = scope.removeprefix(GATEWAY)
            changed_s = self._ran_s - max(0, round(self._now_s - aged_s))
            if entry == Entry.COMPLETED:
                said = OUTCOMES.decode(outcome)
                accepted = MessageId.parse(said.id)
                if accepted is not None:
                    about = KeptFacts(said.admin_queue)
                    yield self._row(accepted.ordinal, queue, key, said.fingerprint, about, changed_s)
            elif entry == Entry.STARTED and owner.startswith(OWNER):
                taken = self._taken.get((guid_from_text(owner.removeprefix(OWNER)), queue, key))
                if taken is None:
                    self.absent += 1
                    continue
                ticket, ordinal = taken
                about = KeptFacts(ticket.admin_queue, ticket.callback, ticket.given)
                yield self._row(ordinal, queue, key, ticket.fingerprint, about, changed_s)

    def _row(
        self, ordinal: int, queue: str, key: str, fingerprint: str, about: KeptFacts, changed_s: int
    ) -> PostedRow:
        name = str(MessageId(self._node.guid, ordinal))
        message_class = ended_s = 0
        ends = [documents.c.scope == ENDS, documents.c.key == name]
        for entry, outcome in self._db.execute(select(documents.c.entry, documents.c.outcome).where(*ends)):
            message_class = MessageClass.ACK_RECEIVE if entry == Entry.COMPLETED else 0
            with suppress(msgspec.MsgspecError, KeyError):
                end = CONFIRMATIONS.decode(outcome)
                message_class, ended_s = MessageClass[end.message_class], end.time_s
        owed = bool(about.callback)
        hook = select(hooks.c.url, hooks.c.body).where(
            hooks.c.id == f"{name}/ended", or_(hooks.c.state == "armed", hooks.c.state == "due")
        )
        for url, body in self._db.execute(hook):
            known = msgspec.json.decode(body)
            given = str(known.get("id", key) if isinstance(known, dict) else known[2])
            about, owed = KeptFacts(about.admin_queue, url, given), True
        return PostedRow(
            ordinal,
            queue,
            key,
            bytes.fromhex(fingerprint),
            about.encoded(),
            changed_s,
            message_class,
            ended_s,
            owed,
        )

    def aliases(self) -> dict[str, int]:
        """Return a counter for each queue that was an address for acknowledgments."""
        return {f"{POSTED_ALIAS}{number}": 1 for number, _ in self._own_queues()}

    def _own_queues(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the name of each queue in which a gateway of this node got confirmations."""
        asked = select(documents.c.key, documents.c.owner).where(documents.c.scope == OWN_QUEUES)
        for name, queue in self._db.execute(asked):
            manager, _, number = name.removeprefix("PRIVATE=").rpartition("\\")
            if Guid(guid_from_text(manager)) == self._node.guid:
                yield int(number, 16), queue

    def confirmed(self, store: Store) -> Iterator[PostedChange]:
        """Yield the ends in the confirmations that wait."""
        own = {queue for _, queue in self._own_queues()}
        for queue, packet in store.everything() if own else ():
            if queue.kind is not QueueKind.LOCAL or queue.name not in own:
                continue
            with suppress(WireFormatError):
                message = decode_message(packet)
                source, ordinal = correlated(message.properties.correlation_id)
                if source == self._node.guid and message.properties.message_class:
                    yield PostedChange(
                        ordinal, self._ran_s, message.properties.message_class, message.user.sent_time_s
                    )


def _tickets(outcomes: Iterable[OutcomeRow]) -> Iterator[tuple[tuple[Guid, str, str], tuple[Ticket, int]]]:
    """Yield the tickets that the node has, by the GUID of the journal, the queue and the key."""
    for row in outcomes:
        if row.outcome[:1] != bytes((Operation.DONE,)):
            continue
        with suppress(msgspec.MsgspecError):
            sent = msgspec.msgpack.decode(row.outcome[1:], type=TaggedSent)
            if sent.tag and sent.runs:
                ticket = msgspec.msgpack.decode(sent.tag, type=Ticket)
                yield (Guid(row.invoker), ticket.queue, ticket.key), (ticket, sent.runs[0][0])


def _forget(db: Connection) -> None:
    """Delete from the history what the store has now."""
    scope = documents.c.scope
    db.execute(delete(documents).where(or_(scope.startswith(GATEWAY), scope.in_([ENDS, OWN_QUEUES]))))
    db.execute(delete(hooks).where(hooks.c.id.endswith("/ended"), hooks.c.sender.startswith(OWNER)))
