"""What gateways kept in a history is in the store of their node afterward; what is killed halfway is repeated."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from mqproto.base.errors import UsageError
from mqproto.edge.exactlyonce import Entry
from mqproto.simulator.client import MessageId
from mqproto.simulator.edges import bringing
from mqproto.simulator.edges.bringing import OWN_QUEUES, Brought, TaggedSent, Ticket, bring
from mqproto.simulator.edges.gateway.message import KeptFacts
from mqproto.simulator.edges.history.documents import Begin, Call, Documents, Finish, LookUp
from mqproto.simulator.edges.history.outbox import Hook, State, Tell
from mqproto.simulator.edges.trail import ENDS, Confirmation, Outcome
from mqproto.simulator.node.control import Operation
from mqproto.simulator.storage import Store
from mqproto.simulator.topology import Node, load
from mqproto.turn.effects import MessageRow, OutcomeRow, QueueKind, QueueRow, Writes, message_key
from mqproto.turn.posted import POSTED_ALIAS
from mqproto.wire import MessageClass, encode_packet, user_message
from mqproto.wire.glance import correlation_id_of
from mqproto.wire.guid import Guid, guid_text

JOURNAL = Guid(UUID(int=7).bytes)
OWNER = f"gateway {guid_text(JOURNAL)}"
QUEUE = r"destination\orders"
SCOPE = f"gateway/{QUEUE}"
FINGERPRINT = "ab" * 32


@pytest.fixture
def node() -> Node:
    return load("three-node").node_named("destination")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/history.sqlite"


def wrote(url: str, *calls: Call) -> None:
    with closing(Documents(url, None)) as documents:
        documents.carry_out(list(calls))


def accepted(node: Node, key: str, ordinal: int) -> Finish:
    outcome = Outcome(str(MessageId(node.guid, ordinal)), FINGERPRINT, "")
    return Finish(SCOPE, key, 0, Entry.COMPLETED, msgspec.json.encode(outcome))


def test_ids_ends_tickets_callbacks_and_waiting_confirmations_come_along(
    node: Node, url: str, tmp_path: Path
) -> None:
    path = tmp_path / "destination.sqlite"
    one = str(MessageId(node.guid, 1))
    end = Confirmation("ACK_RECEIVE", 1_700_000_000)
    hook = Hook(f"{one}/ended", OWNER, "http://x", msgspec.json.encode([QUEUE, "k1", "1"]), state=State.ARMED)
    wrote(
        url,
        accepted(node, "k1", 1),
        accepted(node, "k2", 2),
        Begin(SCOPE, "k3", OWNER, 5),
        Begin(SCOPE, "k4", OWNER, 6),
        Finish(ENDS, one, 0, Entry.COMPLETED, msgspec.json.encode(end)),
        Tell(hook),
        Begin(OWN_QUEUES, f"PRIVATE={guid_text(node.guid)}\\0000002A", "gateway-confirmations", 7),
        Finish(f"trigger/{QUEUE}", "k1", 0, Entry.COMPLETED, b""),
    )
    ticket = msgspec.msgpack.encode(Ticket(QUEUE, "k3", FINGERPRINT, "", "http://y", "3"))
    kept = bytes((Operation.DONE,)) + msgspec.msgpack.encode(TaggedSent([(3, 1)], ticket))
    confirmation = encode_packet(
        user_message(
            source=node.guid,
            destination_manager=node.guid,
            destination=0x2A,
            message_id=9,
            sent_time_s=1_600_000_000,
            body=b"",
            message_class=MessageClass.NACK_Q_DELETED,
            correlation_id=correlation_id_of(node.guid, 2),
        )
    )
    with Store(path, node.guid) as store:
        store.commit(
            Writes(
                queues=[QueueRow(1, QueueKind.LOCAL, "gateway-confirmations")],
                messages=[MessageRow(message_key(1, 1), confirmation, 9, final_ack=False)],
                outcomes={(JOURNAL, 0): OutcomeRow(JOURNAL, 0, kept, True, 1)},
            )
        )
    assert bring(url, path, node) == Brought(ids=3, absent=1)
    assert bring(url, path, node) == Brought(ids=0, absent=0)
    with Store(path, node.guid) as store:
        first, second, third = (store.posted(QUEUE, key) for key in ("k1", "k2", "k3"))
        assert store.posted(QUEUE, "k4") is None
        assert store.load().counters[f"{POSTED_ALIAS}42"] == 1
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.message_id, first.fingerprint.hex(), first.message_class) == (1, FINGERPRINT, 0x4000)
    assert (first.ended_s, first.owed, KeptFacts.of(first.about)) == (
        1_700_000_000,
        True,
        KeptFacts("", "http://x", "1"),
    )
    assert (second.message_id, second.message_class) == (2, MessageClass.NACK_Q_DELETED)
    assert (third.message_id, third.owed, KeptFacts.of(third.about).callback) == (3, True, "http://y")
    with closing(Documents(url, None)) as documents:
        [left] = documents.carry_out([LookUp(f"trigger/{QUEUE}", "k1")])
        assert [*documents.everything("gateway/")] == []
    assert left is not None


def test_what_is_killed_before_the_history_forgets_is_repeated_without_harm(
    node: Node, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "destination.sqlite"
    wrote(url, accepted(node, "k1", 1))

    def killed(db: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bringing, "_forget", killed)
        with pytest.raises(KeyboardInterrupt):
            bring(url, path, node)
    assert bring(url, path, node).ids == 1
    with Store(path, node.guid) as store:
        row = store.posted(QUEUE, "k1")
    assert row is not None
    assert row.message_id == 1


def test_a_history_that_gateways_of_several_nodes_share_stays_where_it_is(
    node: Node, url: str, tmp_path: Path
) -> None:
    other = load("three-node").node_named("sender")
    wrote(url, accepted(node, "k1", 1), accepted(other, "k2", 1))
    with pytest.raises(UsageError, match="gateways of several nodes share this history"):
        bring(url, tmp_path / "destination.sqlite", node)
    with closing(Documents(url, None)) as documents:
        assert len([*documents.everything("gateway/")]) == 2


def test_ids_keep_the_age_that_they_had(node: Node, url: str, tmp_path: Path) -> None:
    passed_s = 0.0
    with closing(Documents(url, None, passed_s=lambda: passed_s)) as documents:
        documents.carry_out([accepted(node, "old", 1)])
        passed_s = 300.0
        documents.carry_out([accepted(node, "new", 2)])
    path = tmp_path / "destination.sqlite"
    bring(url, path, node)
    with Store(path, node.guid) as store:
        old, new = store.posted_as(1), store.posted_as(2)
    assert old is not None
    assert new is not None
    assert old.changed_s < new.changed_s <= 1
