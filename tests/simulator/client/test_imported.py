"""The output of `mqproto store export` is sent again unchanged, and messages that cannot be sent are named."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from mqproto.messages.drafts import ACKNOWLEDGE_RECEIPT, Draft, headers_behind
from mqproto.simulator.client import ReceivedMessage, connect
from mqproto.simulator.client.imported import LeftOut, read_import
from mqproto.simulator.storage.care.export import Exported, line_of, message_in
from mqproto.simulator.topology import load
from mqproto.simulator.topology.views import as_toml
from mqproto.turn.effects import QueueKind
from mqproto.wire import (
    Guid,
    MessageClass,
    SecurityHeader,
    UserMessage,
    encode_packet,
    sid_from_text,
    with_message_class,
)
from tests.examples import (
    DESTINATION,
    SENDER,
    SOMEBODY,
    a_final_ack,
    a_full_message,
    a_transactional_message,
    a_user_message,
)
from tests.simulator.running import running
from tests.simulator.typed import in_process

QUEUE = "PRIVATE=00000000-0000-0000-0000-00000000000D\\00000011"


def line(message: UserMessage | bytes, kind: QueueKind | None = QueueKind.LOCAL, **changes: Any) -> str:
    packet = message if isinstance(message, bytes) else encode_packet(message)
    stored = Exported(DESTINATION, kind, "orders", 1, False, packet)
    return line_of(replace(stored, **changes))


def read(
    *lines: str, queue: str | None = None, has_journal: bool = False
) -> tuple[list[tuple[str, int]], list[str]]:
    """Return each run's destination and number of messages, and the reasons why other messages are left out."""
    found = read_import(lines, "a file", queue, has_journal=has_journal)
    return [(run.destination, len(run.drafts)) for run in found.runs()], [
        one.reason for one in found.left_out
    ]


def test_messages_in_a_row_for_one_queue_and_of_one_kind_are_one_run() -> None:
    recoverable = line(a_user_message(recoverable=True))
    other = line(a_user_message(destination=18))
    lines = [
        line(a_user_message()),
        line(a_user_message()),
        "\n",
        recoverable,
        line(a_transactional_message()),
        other,
    ]
    elsewhere = QUEUE.replace("11", "12")
    assert read(*lines) == ([(QUEUE, 2), (QUEUE, 1), (QUEUE, 1), (elsewhere, 1)], [])
    assert read(*lines, queue="there")[0] == [("there", 2), ("there", 1), ("there", 1), ("there", 1)]


ACKNOWLEDGMENT = a_user_message()
ACKNOWLEDGMENT.properties.message_class = MessageClass.ACK_RECEIVE
OWN_CLASS = a_user_message()
OWN_CLASS.properties.message_class = 0x10
SIGNED = replace(a_full_message(), soap=None)
SIGNED.user.has_soap = False
SID = "S-1-5-21-1-2-3-1000"
OF_A_USER = SecurityHeader(flags=1, sender_id=sid_from_text(SID))
SIGNED_BY_A_USER = replace(SIGNED, security=replace(OF_A_USER, signature=b"signed"))
SOAP = replace(a_full_message(), security=None)
SOAP.user.has_security = False


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (line(b"no packet"), "its packet makes no sense"),
        (line(ACKNOWLEDGMENT), "it is ACK_RECEIVE, which no application sends"),
        (line(OWN_CLASS), "it is of class 0x0010, which no application sends"),
        (line(a_final_ack(), QueueKind.ORDER), "it is"),
        (line(SIGNED), "it has a signature or is encrypted"),
        (line(SIGNED_BY_A_USER), "it has a signature or is encrypted"),
        (line(SOAP), "it has a SOAP header"),
        (
            line(a_transactional_message(), QueueKind.HELD),
            "it came early, and 00000000-0000-0000-0000-00000000000A",
        ),
        (
            line(a_transactional_message(), QueueKind.FINAL),
            "it has arrived, and only its FinalAck was waited for",
        ),
        (
            line(a_transactional_message(), QueueKind.OUTGOING, node=SOMEBODY),
            "it was passing through, and 00000000-0000-0000-0000-00000000000A keeps it",
        ),
    ],
)
def test_what_cannot_be_sent_as_it_was_is_left_out_wherever_it_is_to_go(what: str, reason: str) -> None:
    for queue in (None, "orders"):
        runs, [said] = read(what, queue=queue)
        assert (runs, said[: len(reason)]) == ([], reason)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (line(a_user_message(), queue="system$;deadxact"), "it is a dead letter: name a QUEUE"),
        (line(ACKNOWLEDGMENT, queue="system$;deadletter"), "it is a dead letter: name a QUEUE"),
        (line(a_user_message(), kind=None, queue="1"), "nothing says in which queue it lay: name a QUEUE"),
        (line(a_user_message(), queue="orders;journal"), "it is a journal's copy: name a QUEUE"),
        (line(a_user_message(), queue="system$;journal"), "it is a journal's copy: name a QUEUE"),
        (
            line(a_user_message(recoverable=True), QueueKind.OUTGOING, node=SOMEBODY),
            "it was passing through from 00000000-0000-0000-0000-00000000000A: name a QUEUE",
        ),
        (line(a_user_message(destination="DIRECT=TCP:x\\y\\z")), "it is for no queue that has a name here"),
    ],
)
def test_what_was_kept_or_passed_through_is_sent_only_to_a_queue_that_is_named(
    what: str, reason: str
) -> None:
    runs, [said] = read(what)
    assert (runs, said[: len(reason)]) == ([], reason)
    assert read(what, queue="orders") == ([("orders", 1)], [])


def test_our_own_that_was_on_its_way_is_sent_and_is_said_to_be_in_doubt() -> None:
    mine = {"node": SENDER, "may_have_left": True}
    lines = [
        line(a_transactional_message(), QueueKind.SEQUENCE, **mine),
        line(a_user_message(), QueueKind.OUTGOING, **mine),
    ]
    found = read_import(lines, "a file", None, has_journal=False)
    assert [one.may_have_left for one in found.chosen] == [True, True]
    assert found.nodes == {SENDER}


@pytest.mark.parametrize(("node", "kept"), [(SENDER, "failed"), (DESTINATION, "")])
def test_our_own_keeps_the_choice_of_a_queue_for_dead_letters(node: Guid, kept: str) -> None:
    message = a_user_message(journal_negative=True)
    message.trailing = headers_behind(r".\private$\failed")
    [run] = read_import([line(message, node=node)], "a file", None, has_journal=False).runs()
    [draft] = run.drafts
    assert draft.dead_letter_queue == kept


def test_a_letter_of_an_applications_queue_is_a_dead_letter() -> None:
    message = a_user_message(journal_negative=True)
    message.trailing = headers_behind(r".\private$\failed")
    letter = with_message_class(encode_packet(message), MessageClass.NACK_DELETED)
    assert read(line(letter, queue="failed"))[1] == [
        "it is a dead letter: name a QUEUE to have it sent there"
    ]


def test_who_has_sent_a_message_is_said_of_it_again() -> None:
    message = a_user_message(sender_id=sid_from_text(SID))
    [run] = read_import([line(message)], "a file", None, has_journal=False).runs()
    assert [draft.sender_id for draft in run.drafts] == [SID]


def test_express_messages_do_not_outlive_their_node_so_a_journal_takes_none() -> None:
    runs, [said] = read(line(a_user_message()), line(a_user_message(recoverable=True)), has_journal=True)
    assert (runs, said) == (
        [(QUEUE, 1)],
        "it is express, and --resume keeps what outlives a node: import it without",
    )


def test_what_is_left_out_is_called_by_its_line_and_its_identifier() -> None:
    found = read_import(["", line(SIGNED), line(b"")], "a file", None, has_journal=False)
    assert [str(one).partition(" is left out")[0] for one in found.left_out] == [
        "line 2: 00000000-0000-0000-0000-00000000000A\\5",
        "line 3:",
    ]
    found.leave_out(lambda destination, transactional: "no")
    assert found.left_out == sorted(found.left_out)
    assert isinstance(found.left_out[0], LeftOut)


# With a node

EVERYTHING = [
    ("orders", Draft(body=b"first", label="a label", transactional=True, correlation_id=bytes(range(20)))),
    (
        "notes",
        Draft(
            body=b"\xff\x00",
            recoverable=True,
            priority=6,
            extension=b"more",
            body_type=8,
            application_tag=17,
            time_to_reach_queue_s=3_000,
            time_to_be_received_s=4_000,
            journal_negative=True,
            admin_queue=r"destination\notes",
            acknowledgments=ACKNOWLEDGE_RECEIPT,
            response_queue=r"destination\orders",
        ),
    ),
    ("notes", Draft(body=b"", recoverable=True, journal_positive=True)),
    ("orders", Draft(body=b"second" * 9_000, transactional=True, final_ack=True, journal_negative=True)),
    ("orders,destination\\orders", Draft(body=b"third", transactional=True)),
]


def without_names(message: ReceivedMessage) -> UserMessage:
    """Return everything in a packet except its sender, its time, and its place in a transaction."""
    found = message.record
    user = replace(found.user, message_id=0, sent_time_s=0, source_queue_manager=Guid(bytes(16)))
    if found.transaction is None:
        return replace(found, user=user)
    transaction = replace(found.transaction, flags=0, tx_sequence_number=0, previous_tx_sequence_number=0)
    transaction.final_ack = found.transaction.final_ack
    return replace(found, user=user, transaction=transaction)


async def test_exported_imported_into_an_empty_store_and_received_all_is_as_it_was(tmp_path: Path) -> None:
    topology = load("pair").with_free_ports()
    (file := tmp_path / "pair.toml").write_text(as_toml(topology), "utf-8")
    out, stores = tmp_path / "all.jsonl", tmp_path / "stores"
    place = ("-t", file, "-d", stores)

    async def typed(*words: str | Path) -> Any:
        return await trio.to_thread.run_sync(partial(in_process, *words, *place))

    async def everything() -> dict[str, list[UserMessage]]:
        async with connect(topology, "destination", stores) as client:
            return {
                queue: [without_names(one) for one in await client.receive(queue, limit=20, timeout_s=0)]
                for queue in ("orders", "notes")
            }

    async with running(topology, "destination", stores):
        async with connect(topology, "destination", stores) as client:
            for queue, draft in EVERYTHING:
                await client.send_many(rf"destination\{queue}", [draft])
        done = await typed("store", "export", "destination", "--out", out)
        assert (done.status, done.err) == (0, "")
        before = await everything()
    assert [len(before["orders"]), len(before["notes"])] == [3, 2]
    shutil.rmtree(stores)
    async with running(topology, "destination", stores):
        for _ in range(2):
            done = await typed("send", "--import", out, "--resume", tmp_path / "out.sent")
            assert (done.status, done.complaint.partition(" is ")[2]) == (
                1,
                "left out: it is a journal's copy: name a QUEUE to have it sent there",
            )
            assert len(set(done.out.split())) == 5
        assert await everything() == before
        done = await typed("send", r"destination\notes", "--import", out, "--json")
        assert done.status == 1
        told = json.loads(done.out)
        assert len(told["sent"]) == 3, "the journal's copy as well, since a queue was named"
        assert [one["line"] for one in told["left_out"]] == [
            number
            for number, text in enumerate(out.read_text().splitlines(), start=1)
            if message_in(text).queue == "orders"
        ]
        assert "is not transactional, and the message is" in done.err


def test_what_is_typed_beside_an_import_has_to_make_sense(tmp_path: Path) -> None:
    (file := tmp_path / "one.jsonl").write_text(line(a_user_message()))
    assert "leave all out but the queue" in in_process("send", "--import", file, "--label", "x").complaint
    assert "leave all out but the queue" in in_process("send", "orders", "-", "--import", file).complaint
    assert "name the queue to send to, or a file to --import" in in_process("send", "--body", "x").complaint
    assert (
        "No such file or directory; name a file of"
        in in_process("send", "--import", tmp_path / "no").complaint
    )
    done = in_process("send", "--import", "-", stdin=b"hello\n")
    assert (done.status, done.complaint.partition(" (")[0]) == (
        2,
        "-, line 1: it is not a line of `mqproto store export`",
    )
    done = in_process("send", "--import", file)
    assert done.status == 1, "no node of three-node has that GUID"
    assert "is left out" in done.complaint


def test_an_import_from_stores_of_several_nodes_asks_who_is_to_send_it(tmp_path: Path) -> None:
    topology = load("three-node")
    nodes = [topology.node_named(name).guid for name in ("sender", "destination")]
    (file := tmp_path / "two.jsonl").write_text(
        "\n".join(line(a_user_message(), node=node, queue="orders") for node in nodes)
    )
    done = in_process("send", "orders", "--import", file, "-d", tmp_path)
    assert (done.status, done.complaint) == (
        2,
        "they are from stores of destination, sender: say with --node who is to send them",
    )
    (empty := tmp_path / "empty.jsonl").write_text("\n")
    done = in_process("send", "--import", empty, "-d", tmp_path)
    assert (done.status, done.complaint) == (0, f"{empty} has no messages: nothing was sent")
