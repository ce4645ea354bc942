"""Each property of a message survives every way through the system.

Three queue managers run, qm1 to qm3 in a row. Messages are handed in at qm1 in every possible way, and looked at in
each place that they reach: their queue and its journal at qm3, their sender's journal, dead-letter queues, and the
captures that all three have written. MQPROTO_PROPERTIES is the number of rounds; each takes a second or two.

The changes that the specification requires are in `expected`, and nothing else is changed: a transactional message has
priority 0 and is recoverable ([MS-MQMQ] 2.2.20.5), and a dead letter has a class that gives the reason ([MS-MQQB]
3.1.7.2). The times stay those that were requested, however much of them has passed.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
import trio
from hypothesis import Phase, given, settings, strategies as st

from mqproto import Draft
from mqproto.captures.files.pcap import read_frames
from mqproto.captures.packets import PacketReader
from mqproto.formatname.wire import admin_from_wire, response_from_wire
from mqproto.queues.localqueue import JOURNAL_SUFFIX, SystemQueue
from mqproto.simulator.client import MessageId, connect
from mqproto.simulator.client.blocking import BlockingClient
from mqproto.simulator.client.talk import ACKNOWLEDGMENTS
from mqproto.simulator.node.posting import FULL_RECEIVE
from mqproto.simulator.rig.supervisor import capture_of
from mqproto.simulator.testing.managers import QueueManagers, started
from mqproto.simulator.topology import load, parse
from mqproto.testing import sids
from mqproto.wire import INFINITE, Guid, MessageClass, UserMessage, guid_text, sid_text
from mqproto.wire.layouts.properties import LONGEST_LABEL
from tests.simulator.typed import in_process

EXAMPLES: Final = int(os.environ.get("MQPROTO_PROPERTIES", "6"))
MISSING: Final = 0x9999
"""A queue number that no queue has."""
FILLER_BYTES: Final = 800
"""The size of a body that, with its headers, leaves no room for another message in a quota of 1 KiB."""
TIMEOUT_S: Final = 20
WITHOUT_SHRINKING: Final = (Phase.explicit, Phase.reuse, Phase.generate)
"""All phases of Hypothesis except shrinking, in which each step would wait for messages that do not arrive."""

REPORTS: Final = "PUBLIC=5E3DFE41-5B1C-4A3C-9F0B-6B3A5B1D2C11"
TOPOLOGY: Final = f"""
[node.qm1]
[node.qm1.queue.acks]
[node.qm1.queue.gateway-confirmations]
[node.qm2]
[node.qm2.queue.acks]
[node.qm2.queue.reports]
public = "{REPORTS.removeprefix("PUBLIC=")}"
[node.qm3]
[node.qm3.queue.orders]
transactional = true
journal = true
[node.qm3.queue.notes]
journal = true
[node.qm3.queue.acks]
[node.qm3.queue.full]
quota_kb = 1
[[link]]
between = ["qm1", "qm2"]
[[link]]
between = ["qm2", "qm3"]
"""

MANAGERS: Final = parse(TOPOLOGY, "qm.toml")


def named(queue: str) -> str:
    """Return the format name of a queue."""
    return str(MANAGERS.resolve(queue, at="qm1").format_name)


Said = Mapping[str, Any]
"""The properties of a message, keyed by the names that `Draft` uses, and its class.

Queues are given by their format names.
"""


# What messages say


def expected(draft: Draft, message_class: int = 0) -> Said:
    """Return the properties that a message should have when it arrives."""
    said = {name: getattr(draft, name) for name in ALL}
    if draft.transactional:
        said |= {"priority": 0, "recoverable": True}
    else:
        said |= {"final_ack": False}
    return {**said, "destinations": (), "message_class": message_class}


def packet_says(message: UserMessage) -> Said:
    """Return the properties in a packet, read field by field."""
    base, user, properties = message.base, message.user, message.properties
    transaction, security, debug = message.transaction, message.security, message.debug
    ends = user.source_queue_manager, user.queue_manager_address
    admin = admin_from_wire(user.admin_type, user.admin_queue, *ends)
    response = response_from_wire(user.response_type, user.response_queue, *ends, admin)
    assert security is None or (security.flags, security.signature) == (1, b"")
    return {
        "body": properties.message_body,
        "label": properties.label or "",
        "transactional": transaction is not None,
        "recoverable": user.recoverable,
        "priority": base.priority,
        "extension": properties.extension_data,
        "body_type": properties.body_type,
        "application_tag": properties.application_tag,
        "correlation_id": properties.correlation_id,
        "time_to_reach_queue_s": base.time_to_reach_queue_s,
        "time_to_be_received_s": user.time_to_be_received_s,
        "journal_negative": user.journal_negative,
        "journal_positive": user.journal_positive,
        "final_ack": transaction is not None and transaction.final_ack,
        "admin_queue": str(admin or ""),
        "response_queue": str(response or ""),
        "acknowledgments": properties.flags & 0x0F,
        "trace_queue": f"PUBLIC={guid_text(debug.queue_identifier)}"
        if debug and debug.queue_identifier
        else "",
        "sender_id": sid_text(security.sender_id) if security else "",
        "destinations": (),
        "message_class": properties.message_class,
    }


def json_says(shown: dict[str, Any]) -> Said:
    """Return the properties that `receive --json` shows for an application's message."""

    def octets(name: str) -> bytes:
        return (
            base64.b64decode(shown[f"{name}_base64"])
            if f"{name}_base64" in shown
            else shown.get(name, "").encode()
        )

    about = MessageId.parse(shown["correlation"]) if "correlation" in shown else None
    return {
        "body": octets("body"),
        "label": shown["label"],
        "transactional": shown["transactional"],
        "recoverable": shown["transactional"] or shown.get("recoverable", False),
        "priority": shown["priority"],
        "extension": octets("extension"),
        "body_type": shown.get("body_type", 0),
        "application_tag": shown.get("application_tag", 0),
        "correlation_id": about.correlation_id if about else bytes(20),
        "time_to_reach_queue_s": shown.get("time_to_reach_queue_s", INFINITE),
        "time_to_be_received_s": shown.get("time_to_be_received_s", INFINITE),
        "journal_negative": shown.get("dead_letter", False),
        "journal_positive": shown.get("journal", False),
        "final_ack": shown.get("final_ack", False),
        "admin_queue": shown.get("admin_queue", ""),
        "response_queue": shown.get("response_queue", ""),
        "acknowledgments": sum(ACKNOWLEDGMENTS[name] for name in shown.get("acknowledgments", [])),
        "trace_queue": shown.get("trace_queue", ""),
        "sender_id": shown.get("sender_id", ""),
        "destinations": (),
        "message_class": shown.get("class", 0),
    }


# Messages


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Draw any message that an application may send to qm3, with times too long for it to expire."""
    own = [named(rf"{name}\acks") for name in MANAGERS.nodes]
    others = [r"DIRECT=OS:shop\PRIVATE$\replies", REPORTS]
    times = st.just(INFINITE) | st.sampled_from([86_400, INFINITE - 1]) | st.integers(3_600, INFINITE)
    characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    octets = st.text(characters, max_size=99).map(str.encode) | st.binary(max_size=99)
    numbers = st.just(0) | st.sampled_from([1, 8, 0xFFFFFFFF]) | st.integers(0, 0xFFFFFFFF)
    admin_queue = draw(st.sampled_from(["", *own]))
    transactional = draw(st.booleans())
    return Draft(
        body=draw(octets),
        label=draw(st.text(characters, max_size=LONGEST_LABEL // 2)),
        transactional=transactional,
        recoverable=draw(st.booleans()),
        priority=draw(st.integers(0, 7)),
        extension=draw(octets),
        body_type=draw(numbers),
        application_tag=draw(numbers),
        correlation_id=draw(st.just(bytes(20)) | st.binary(min_size=20, max_size=20)),
        time_to_reach_queue_s=draw(times),
        time_to_be_received_s=draw(times),
        journal_negative=draw(st.booleans()),
        journal_positive=draw(st.booleans()),
        final_ack=transactional and draw(st.booleans()),
        admin_queue=admin_queue,
        response_queue=draw(st.sampled_from(["", *own, *others])),
        acknowledgments=draw(st.integers(1, 15)) if admin_queue else 0,
        trace_queue=draw(st.sampled_from(["", REPORTS])),
        sender_id=draw(st.just("") | sids()),
    )


# Ways into the system

WITH_KEYS: Final = {"privacy_level", "encryption_algorithm", "signer", "hash_algorithm"}
"""Properties that only queue managers with keys support; they are tested in tests/simulator/security."""
NEVER_SENT: Final = {"dead_letter_queue"}
ALL: Final = frozenset(each.name for each in fields(Draft)) - {"destinations"} - WITH_KEYS - NEVER_SENT


@dataclass(frozen=True)
class Running:
    """Three queue managers, and a gateway to qm1."""

    managers: QueueManagers
    gateway: httpx.Client

    @property
    def place(self) -> list[str]:
        """The options that tell a command where to find the queue managers."""
        return ["--topology", str(self.managers.file), "--directory", str(self.managers.directory)]

    def typed(self, *arguments: str | Path) -> list[str]:
        """Return the lines that a command prints."""
        done = in_process(*arguments, *self.place)
        assert done.status == 0, done.err
        return done.out.removesuffix("\n").split("\n")


@dataclass(frozen=True)
class Way:
    """A way to hand in a message at qm1.

    carried: the properties that the way supports; all others have their defaults.
    fixed: the properties that the way sets itself.
    unheard: the properties that the way also sets if the message has no administration queue.
    reaches_unknown: whether the way accepts a queue that nobody has declared.
    """

    send: Callable[[Running, str, Draft], MessageId]
    carried: frozenset[str] = ALL
    fixed: Mapping[str, Any] = field(default_factory=dict)
    unheard: Mapping[str, Any] = field(default_factory=dict)
    reaches_unknown: bool = True

    def of(self, draft: Draft) -> Draft:
        """Return a message as this way hands it in, with the properties that it supports or sets."""
        plain = Draft(body=draft.body, transactional=draft.transactional)
        chosen = {name: getattr(draft, name) for name in self.carried}
        return replace(plain, **chosen | dict(self.fixed) | dict({} if draft.admin_queue else self.unheard))


def by_command(running: Running, queue: str, draft: Draft) -> MessageId:
    """Send with `mqproto send`; texts are arguments, and other data is in files."""
    options = {
        "label": draft.label,
        "priority": draft.priority,
        "body-type": draft.body_type or "",
        "application-tag": draft.application_tag,
        "correlation-id": _spelt(draft.correlation_id),
        "sender-id": draft.sender_id,
        "response-queue": draft.response_queue,
        "admin-queue": draft.admin_queue,
        "trace-queue": draft.trace_queue,
        "time-to-reach-queue": draft.time_to_reach_queue_s,
        "time-to-be-received": draft.time_to_be_received_s,
    }
    switches = {
        "transactional": draft.transactional,
        "no-transactional": not draft.transactional,
        "recoverable": draft.recoverable,
        "dead-letter": draft.journal_negative,
        "journal": draft.journal_positive,
        "final-ack": draft.final_ack,
    }
    given_octets = {("body", "file"): draft.body, ("extension", "extension-file"): draft.extension}
    for (as_text, as_file), octets in given_octets.items():
        try:
            options[as_text] = _text(octets)
        except UnicodeDecodeError:
            file = running.managers.directory / as_file
            file.write_bytes(octets)
            options[as_file] = str(file)
    typed = [f"--{name}={value}" for name, value in options.items() if value != "" or name == "body"]
    typed += [f"--{name}" for name, is_set in switches.items() if is_set]
    typed += [f"--ack={name}" for name, flag in ACKNOWLEDGMENTS.items() if draft.acknowledgments & flag]
    [sent] = running.typed("send", queue, *typed)
    return _identifier(sent)


def _text(octets: bytes) -> str:
    if b"\0" in octets:
        raise UnicodeDecodeError("utf-8", octets, 0, 1, "no argument of a command has a NUL")
    return octets.decode()


def _spelt(correlation_id: bytes) -> str:
    """Return a correlation identifier in one of its two spellings; empty if it is not set."""
    if not any(correlation_id) or correlation_id[-1] & 1:
        return correlation_id.hex() * any(correlation_id)
    return str(MessageId(Guid(correlation_id[:16]), int.from_bytes(correlation_id[16:], "little")))


def by_client(running: Running, queue: str, draft: Draft) -> MessageId:
    """Send with the client for trio."""
    managers = running.managers

    async def send() -> MessageId:
        async with connect(managers.topology, "qm1", managers.directory) as client:
            [sent] = await client.send_many(queue, [draft])
            return sent

    return trio.run(send)


def by_gateway(running: Running, queue: str, draft: Draft) -> MessageId:
    """Send with `mqproto gateway`, which puts every message on disk, and hears how a message ends if nobody else
    does.
    """
    headers = {
        "MQ-Label": quote(draft.label),
        "MQ-Time-To-Reach-Queue": str(draft.time_to_reach_queue_s),
        "MQ-Time-To-Be-Received": str(draft.time_to_be_received_s),
        "MQ-Correlation-Id": draft.correlation_id.hex(),
        "MQ-Body-Type": str(draft.body_type or ""),
        "MQ-Application-Tag": str(draft.application_tag),
        "MQ-Extension": base64.b64encode(draft.extension).decode(),
        "MQ-Response-Queue": quote(draft.response_queue),
        "MQ-Admin-Queue": quote(draft.admin_queue),
        "MQ-Sender-Id": draft.sender_id,
        "MQ-Acknowledge": ", ".join(
            name for name, flag in ACKNOWLEDGMENTS.items() if draft.acknowledgments & flag
        ),
    }
    if not draft.transactional:
        headers["MQ-Priority"] = str(draft.priority)
    path = f"/queues/{quote(queue, safe='')}/messages"
    answer = running.gateway.post(path, content=draft.body, headers=headers)
    assert answer.status_code == 200, answer.text
    return _identifier(answer.json()["id"])


def _identifier(text: str) -> MessageId:
    found = MessageId.parse(text)
    assert found is not None, text
    return found


WAYS: Final = {
    "command line": Way(by_command),
    "client": Way(by_client),
    "gateway": Way(
        by_gateway,
        carried=frozenset(
            {
                "label",
                "priority",
                "correlation_id",
                "time_to_reach_queue_s",
                "time_to_be_received_s",
                "body_type",
                "application_tag",
                "extension",
                "response_queue",
                "admin_queue",
                "acknowledgments",
                "sender_id",
            }
        ),
        fixed={"recoverable": True, "journal_negative": True},
        unheard={"admin_queue": named(r"qm1\gateway-confirmations"), "acknowledgments": FULL_RECEIVE},
        reaches_unknown=False,
    ),
}
"""All ways to hand in a message. When a way supports another property, the property's name is added to its
`carried`.
"""


# Places


@dataclass
class Ledger:
    """The messages that were sent, keyed by identifier.

    arrived: those sent to queues that accept them.
    lost: those sent to a missing or a full queue.
    """

    arrived: dict[MessageId, Draft] = field(default_factory=dict)
    lost: dict[MessageId, Draft] = field(default_factory=dict)


def hand_in(running: Running, batch: Iterable[Draft]) -> Ledger:
    """Hand in each message in each way.

    A way that can reach queues that do not accept the message also hands it in to one of these.
    """
    ledger = Ledger()
    nowhere = rf"PRIVATE={guid_text(MANAGERS.nodes['qm3'].guid)}\{MISSING:08X}"
    for way in WAYS.values():
        for draft in map(way.of, batch):
            queue = r"qm3\orders" if draft.transactional else r"qm3\notes"
            ledger.arrived[way.send(running, queue, draft)] = draft
            if way.reaches_unknown:
                # A queue that is not there has no dead letter of a message without a transaction: a full one has.
                dead = replace(draft, journal_negative=True)
                queue = nowhere if draft.transactional else r"qm3\full"
                ledger.lost[way.send(running, queue, dead)] = dead
    return ledger


def agree(found: Mapping[MessageId, Said], wanted: Mapping[MessageId, Said], where: str) -> None:
    """Check that messages have the expected properties."""
    differences = [
        f"{where}: {key} is without {name} = {value!r}: {found[key][name]!r}"
        for key, said in wanted.items()
        if key in found
        for name, value in said.items()
        if found[key][name] != value
    ]
    assert not differences, "\n".join(differences)
    assert found.keys() == wanted.keys(), where


def taken(client: BlockingClient, queue: str, wanted: Collection[MessageId]) -> dict[MessageId, Said]:
    """Return the properties of the expected messages in a queue; any others are removed from it, too."""
    found: dict[MessageId, Said] = {}
    while not found.keys() >= set(wanted):
        messages = client.receive(queue, 100, timeout_s=TIMEOUT_S)
        assert messages, f"{queue} has no more than {len(found)} of {len(wanted)} messages"
        found |= {message.id: packet_says(message.record) for message in messages}
    return {identifier: found[identifier] for identifier in wanted}


def look_everywhere(running: Running, ledger: Ledger, qm1: BlockingClient, qm3: BlockingClient) -> None:
    """Check that each message is unchanged, in each place that it reaches."""
    for queue, is_transactional in (("orders", True), ("notes", False)):
        sent = {
            key: draft for key, draft in ledger.arrived.items() if draft.transactional == is_transactional
        }
        if not sent:
            continue
        came = {key: expected(draft) for key, draft in sent.items()}
        lines = running.typed("receive", queue, "--json", f"--count={len(sent)}", f"--timeout={TIMEOUT_S}")
        shown = [json.loads(line) for line in lines]
        agree({_identifier(each["id"]): json_says(each) for each in shown}, came, f"{queue}, as JSON")
        agree(taken(qm3, f"{queue}{JOURNAL_SUFFIX}", sent), came, f"the journal of {queue}")
    lost = ledger.lost
    for client, queue, is_transactional, reason in (
        (qm1, SystemQueue.DEADXACT, True, MessageClass.NACK_BAD_DST_Q),
        (qm3, SystemQueue.DEADLETTER, False, MessageClass.NACK_Q_EXCEED_QUOTA),
    ):
        dead = {
            key: expected(draft, reason)
            for key, draft in lost.items()
            if draft.transactional == is_transactional
        }
        agree(taken(client, queue, dead), dead, queue)
    # Of a transactional message there is a copy when it was received, of another when the next hop has it.
    kept = {
        key: expected(draft)
        for key, draft in [*ledger.arrived.items(), *lost.items()]
        if draft.journal_positive and (key in ledger.arrived or not draft.transactional)
    }
    agree(taken(qm1, SystemQueue.JOURNAL, kept), kept, SystemQueue.JOURNAL)


def captured(file: Path, ledger: Ledger) -> dict[MessageId, Said]:
    """Return the properties in the packets of a capture."""
    found: dict[MessageId, Said] = {}
    with file.open("rb") as stream:
        for seen in PacketReader(read_frames(stream)):
            message = seen.packet
            if isinstance(message, UserMessage):
                key = MessageId(message.user.source_queue_manager, message.user.message_id)
                if key in ledger.arrived or key in ledger.lost:
                    said = packet_says(message)
                    agree({key: found.setdefault(key, said)}, {key: said}, "another hop")
    return found


def row_of(draft: Draft) -> Said:
    """Return what `mqproto decode --json` should show for a draft."""
    said = expected(draft)
    delivery = "transactional" if draft.transactional else "recoverable" if draft.recoverable else "express"
    same = (
        "priority",
        "time_to_reach_queue_s",
        "time_to_be_received_s",
        "journal_negative",
        "journal_positive",
    )
    numbers = ("body_type", "application_tag", "acknowledgments", "message_class")
    texts = ("label", "admin_queue", "response_queue", "sender_id")
    return {
        **{name: said[name] for name in (*same, *numbers)},
        **{name: said[name] or None for name in texts},
        "delivery": delivery,
        "asks_final_ack": draft.final_ack if draft.transactional else None,
        "correlation": draft.correlation_id.hex(),
        "body_bytes": len(draft.body),
        "extension_bytes": len(draft.extension),
        "security_header": bool(said["sender_id"]),
        "sender_kind": "SID" if said["sender_id"] else None,
        "signed": None,
        "encrypted": None,
    }


def decoded(file: Path, ledger: Ledger) -> dict[MessageId, Said]:
    """Return what `mqproto decode --json` shows, reduced to the keys that `row_of` uses."""
    found: dict[MessageId, Said] = {}
    done = in_process("decode", "--json", file)
    for row in map(json.loads, done.out.removesuffix("\n").split("\n")):
        key = MessageId.parse(row["message"] or "")
        if key in ledger.arrived or key in ledger.lost:
            assert key is not None
            found[key] = {name: row[name] for name in row_of(Draft(body=b""))}
    return found


def url_of(managers: QueueManagers, name: str) -> str:
    gateway = managers.topology.nodes[name].gateway
    assert gateway is not None
    return f"http://{gateway['listen']}"


@pytest.mark.long
@pytest.mark.timeout(300 + 10 * EXAMPLES)
def test_each_property_survives_every_way_to_every_place(tmp_path: Path) -> None:
    quick = load("three-node").node_named("sender").settings
    nodes = {name: replace(node, settings=quick) for name, node in MANAGERS.nodes.items()}
    nodes["qm1"] = replace(nodes["qm1"], gateway={})
    sent = Ledger()
    with (
        started(tmp_path, replace(MANAGERS, nodes=nodes), capture=tmp_path / "run.pcapng") as managers,
        httpx.Client(base_url=url_of(managers, "qm1"), timeout=TIMEOUT_S, trust_env=False) as gateway,
        managers.connect("qm1") as qm1,
        managers.connect("qm3") as qm3,
    ):
        running = Running(managers, gateway)
        qm1.send(r"qm3\full", bytes(FILLER_BYTES), recoverable=True)

        @settings(max_examples=EXAMPLES, phases=WITHOUT_SHRINKING)
        @given(batch=st.lists(drafts(), min_size=2, max_size=3))
        def look(batch: list[Draft]) -> None:
            ledger = hand_in(running, batch)
            look_everywhere(running, ledger, qm1, qm3)
            sent.arrived.update(ledger.arrived)
            sent.lost.update(ledger.lost)

        look()
    came = {key: expected(draft) for key, draft in [*sent.arrived.items(), *sent.lost.items()]}
    for name in managers.names:
        agree(captured(capture_of(tmp_path / "run.pcapng", name), sent), came, f"the capture of {name}")
    rows = {key: row_of(draft) for key, draft in [*sent.arrived.items(), *sent.lost.items()]}
    agree(decoded(capture_of(tmp_path / "run.pcapng", "qm2"), sent), rows, "decode --json")
