"""Our node and a letter peer, both with keys: the outcomes of messages that are encrypted, signed, or both.

For each wish, one message is sent in each direction to a transactional queue, and one to an express queue. Each outcome
is recorded: the message arrived whole, with its kind of signature; it arrived altered; or it was refused, with a class.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from mqproto.messages.drafts import ACKNOWLEDGE_ARRIVAL, REPORT_NO_ARRIVAL, Draft
from mqproto.simulator.client import Client, connect
from mqproto.simulator.node.received import ReceivedMessage
from mqproto.simulator.security.keyfiles import SIGNING, KeptKeyPair, KeyFiles
from mqproto.simulator.topology import load
from mqproto.simulator.topology.places import keys_path, public_path
from tests.letter.audit import audit
from tests.letter.cell import TIMERS, TO_LETTER, TO_OURS
from tests.letter.matrix import ADDRESSES
from tests.letter.node import LETTER, OURS, QUEUES, SETTINGS, Node
from tests.letter.peer.cryptoapi import KEY_EXCHANGE, SIGNATURES, pack_public_key
from tests.letter.peer.network import Sockets
from tests.letter.peer.packets import (
    MD2,
    MD4,
    MD5,
    NA,
    PA,
    SHA_1,
    SHA_256,
    SHA_512,
    SIGNED_10,
    SIGNED_20,
    SIGNED_30,
    Class,
    Security,
    UserMessage,
)
from tests.letter.peer.peer import Peer
from tests.letter.peer.protection import Keys, Protection
from tests.letter.peer.queues import Queue
from tests.letter.peer.switches import Switches
from tests.letter.wire import running as peers_running
from tests.simulator.running import Log, running

from .keys import CIPHERS, keys_of, owner

OWNER, PEER = owner(1), owner(0)
"""The owner of our keys, and the owner of the letter peer's keys."""
USER: Final = bytes.fromhex("010500000000000515000000AD4A9EBD36D9FA3D63A656DAE8030000")
USER_TEXT: Final = "S-1-5-21-3181267629-1039850806-3671500387-1000"
BODY: Final = b"%s by %s: a body that takes more blocks than one, of whatever cipher"
TAKES: Final = {"orders": "few", "notes": "acks"}
"""The queues to which messages are sent. For each, the second queue if a message is sent to a list of two queues."""
ACKS: Final = f"PRIVATE={LETTER}\\{QUEUES['acks']:08x}"
ANSWERS: Final = r"DIRECT=OS:letter\private$\answer"
TOO_LONG_S: Final = 60
"""A time limit in seconds: a test that takes longer has failed, however busy the machine is."""
WHOLE, ALTERED, NOT_SAID = "whole", "altered", "NACK that nobody sends"
CLASSES: Final = {number: name for name, number in vars(Class).items() if name.startswith("NACK")}


class Wish(NamedTuple):
    """The protection that a message is to have, and its other properties."""

    cipher: str = ""
    kind: int = 0
    """The kind of the message's signature; 0 if it has none."""
    hash_algorithm: int = SHA_512
    also: str = ""
    """A further property: `listed`, `answered` or `named`; empty if there is none."""


WISHES: Final = {
    "plain": Wish(),
    "named": Wish(also="named"),
    **{cipher: Wish(cipher) for cipher in CIPHERS},
    **{f"{cipher}, signed": Wish(cipher, SIGNED_20) for cipher in CIPHERS},
    "signed": Wish(kind=SIGNED_20),
    "signed, SHA-256": Wish(kind=SIGNED_20, hash_algorithm=SHA_256),
    "signed, SHA-1": Wish(kind=SIGNED_20, hash_algorithm=SHA_1),
    "signed, MD5": Wish(kind=SIGNED_20, hash_algorithm=MD5),
    "signed, answered": Wish(kind=SIGNED_20, also="answered"),
    "signed, listed": Wish(kind=SIGNED_30, also="listed"),
    "RC2-128, signed, listed": Wish("RC2-128", SIGNED_30, also="listed"),
}
BY_PEERS: Final = {
    "signed, MSMQ 1.0": Wish(kind=SIGNED_10),
    "signed, MSMQ 3.0": Wish(kind=SIGNED_30),
    "signed, MD2": Wish(kind=SIGNED_20, hash_algorithm=MD2),
    "signed, MD4": Wish(kind=SIGNED_20, hash_algorithm=MD4),
}
"""Wishes for messages that our node does not send; only the peer sends them."""

WEAK: Final = [cipher for cipher in CIPHERS if not cipher.startswith("AES")]
ASKS: Final[dict[str, dict[str, object]]] = {
    "orders": {"weak_ciphers": WEAK},
    "notes": {"weak_ciphers": WEAK},
    "acks": {"weak_ciphers": WEAK},
    "few": {"weak_ciphers": WEAK},
    "nowhere": {"authenticated": True, "privacy": "body", "senders": ["S-1-5-18"]},
}
"""The protection that our queues require."""

Outcomes = dict[tuple[str, str, str], str]
"""Outcomes, keyed by direction, requested protection and queue."""


@dataclass
class Exchange:
    """A node in this process, a peer, and the outcome of each message between the two."""

    folder: Path
    insecure_nacks: bool = True
    log: Log = field(default_factory=Log)
    outcomes: Outcomes = field(default_factory=dict)

    def __post_init__(self) -> None:
        ours, theirs, _ = next(ADDRESSES)
        settings = {**SETTINGS, "send_insecure_nacks": self.insecure_nacks}
        self.node = Node(self.folder, ours, theirs, settings, ASKS)
        queues = [Queue(name, number, name in ("orders", "few")) for name, number in QUEUES.items()]
        addresses = {OURS: ours}
        self.peer = Peer(LETTER, theirs, Sockets(), queues, addresses, timers=TIMERS)
        self.peer.insecure_nacks = self.insecure_nacks

    def write_keys(self) -> None:
        """Write our node's keys, and the peer's public keys as a directory would have them.

        One of the peer's keys is marked as a key for signatures.
        """
        files = KeyFiles(keys_path(self.folder, "ours"), "ours")
        public = public_path(self.folder, "letter")
        public.mkdir()
        for word in ("base", "enhanced", "aes"):
            files.keep(KeptKeyPair(word, OWNER.exchange), "")
            kind = SIGNATURES if word == "enhanced" else KEY_EXCHANGE
            (public / f"{word}.blob").write_bytes(pack_public_key(PEER.rsa.public_key(), kind))
        files.keep(KeptKeyPair(SIGNING, OWNER.signing, OWNER.certificate), "")
        (public / "signing.cer").write_bytes(PEER.certificate.der)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.node.write_topology()
        self.write_keys()
        topology = load(self.node.topology)
        async with (
            running(topology, "ours", self.folder, self.log),
            peers_running(self.peer),
            connect(topology, "ours", self.folder) as self.client,
        ):
            yield
            assert audit(OURS, self.peer.heard) == []

    def turn(self, switches: Switches = Switches(), keys: Keys | None = None) -> None:  # noqa: B008
        """Make the peer read the text differently from now on, or use other keys; its random numbers are the same each
        time.
        """
        keys = keys or keys_of(PEER, LETTER, OWNER, OURS)
        self.peer.protection = Protection(self.peer.codec, keys, switches, random.Random(0).randbytes)

    # -- both ways ------------------------------------------------------------------------------------------------

    async def exchange(self, names: Iterable[str]) -> Outcomes:
        """Send one message for each wish in both directions, and wait until each message has its outcome."""
        self.outcomes = {}
        wishes = {name: wish for name, wish in {**WISHES, **BY_PEERS}.items() if name in set(names)}
        await self.peer_sends(wishes)
        await self.node_sends({name: wish for name, wish in wishes.items() if name in WISHES})
        return self.outcomes

    def _body(self, way: str, name: str) -> bytes:
        return BODY % (name.encode(), way.encode())

    def _outcome(self, way: str, label: str, body: bytes, signed_as: int) -> None:
        name, _, queue = label.partition("/")
        is_whole = body == self._body(way, name)
        signed = f", signed {signed_as}" if signed_as else ""
        self.outcomes[way, name, queue] = (WHOLE if is_whole else ALTERED) + signed

    async def peer_sends(self, wishes: Mapping[str, Wish]) -> None:
        """Send the peer's messages, and record the outcome of each.

        The administration queue is told about each message; refused transactional ones also have a FinalAck.
        """
        sent = [self._peer_sends(name, wish, queue) for queue in TAKES for name, wish in wishes.items()]
        notes, answers = f"PRIVATE={OURS}\\{QUEUES['notes']:08x}", self._queue("acks").messages
        self.peer.send(notes, label="end", admin=ACKS, acknowledge=PA)
        await self.peer.until(lambda: "end" in self._told() and not self.peer.waiting())
        for queue in TAKES:
            while messages := await self.client.receive(queue, limit=500, timeout_s=0):
                for message in messages:
                    await self._came_to_ours(message)
        for one in sent:
            await self._refused_by_ours(one)
        asked = sum(self.insecure_nacks or not said.startswith("NACK") for said in self.outcomes.values())
        assert len(answers) == asked + 1, "one of each, and of the end"
        answers.clear()

    def _queue(self, name: str) -> Queue:
        return next(queue for queue in self.peer.queues if queue.name == name)

    def _told(self) -> dict[str, int]:
        """Return the class that the administration queue has received for each message, keyed by label."""
        return {ack.label: ack.message_class for ack in self._queue("acks").messages if ack.message_class}

    async def _refused_by_ours(self, message: UserMessage) -> None:
        """Record why a message did not arrive: the class in its FinalAck, and that in its NACK, if NACKs are sent."""
        name, _, queue = message.label.partition("/")
        key, finals, classes = (TO_OURS, name, queue), self.peer.departures.finals, set[int]()
        if key in self.outcomes:
            return
        if message.transaction:
            await self.peer.until(lambda: message.message_id in finals)
            classes.add(finals[message.message_id])
        if self.insecure_nacks:
            await self.peer.until(lambda: message.label in self._told())
            classes.add(self._told()[message.label])
        assert len(classes) < 2, f"{message.label}: {classes}"
        self.outcomes[key] = CLASSES[classes.pop()] if classes else NOT_SAID

    def _peer_sends(self, name: str, wish: Wish, queue: str) -> UserMessage:
        also: dict[str, Any] = {}
        if wish.also == "named":
            also["security"] = Security(USER)
        elif wish.also == "answered":
            also["response"] = ANSWERS
        elif wish.also == "listed":
            also["destinations"] = [f"PRIVATE={OURS}\\{QUEUES[each]:08x}" for each in (queue, TAKES[queue])]
        return self.peer.send(
            f"PRIVATE={OURS}\\{QUEUES[queue]:08x}",
            self._body(TO_OURS, name),
            transactional=queue == "orders",
            label=f"{name}/{queue}",
            seal=CIPHERS[wish.cipher] if wish.cipher else None,
            sign=(wish.kind, wish.hash_algorithm) if wish.kind else None,
            admin=ACKS,
            acknowledge=PA | NA,
            dead_letter=True,
            **also,
        )

    async def _came_to_ours(self, message: ReceivedMessage) -> None:
        if message.label == "end":
            return
        await self.peer.until(lambda: message.label in self._told())
        assert self._told()[message.label] == Class.ACK_REACH_QUEUE
        security = message.record.security
        signed_as = security.signature_type if security else 0
        assert bool(security and security.authenticated) == bool(signed_as), "AU and AS say the same"
        assert not (security and security.body_encrypted), "nobody receives what is encrypted"
        self._outcome(TO_OURS, message.label, message.body, signed_as)

    async def node_sends(self, wishes: Mapping[str, Wish]) -> None:
        """Send our node's messages; the peer reports which of them arrived and which it refused.

        Check that the reports that our node received agree with the peer's account.
        """
        peer, client = self.peer, self.client
        before = len(peer.refusals)
        for name, wish in wishes.items():
            for to in TAKES:
                await self._node_sends(client, name, wish, to)
        expected = len(wishes) * len(TAKES)
        kept = [self._queue(name) for name in TAKES]

        def refused() -> dict[str, int]:
            """Return the class of each refused message, keyed by its label.

            If a message is sent to a list of queues, all its copies have the same label.
            """
            return {label: message_class for label, message_class, _ in peer.refusals[before:]}

        await peer.until(lambda: sum(len(q.messages) for q in kept) + len(refused()) >= expected)
        for came in (message for queue in kept for message in queue.messages):
            signed_as = came.security.signed_as if came.security else 0
            self._outcome(TO_LETTER, came.label, came.body, signed_as)
        for queue in peer.queues:
            queue.messages.clear()
        for label, message_class in refused().items():
            name, _, queue_name = label.partition("/")
            self.outcomes[TO_LETTER, name, queue_name] = CLASSES[message_class]
        await self._heard_by_ours(client, wishes)

    async def _node_sends(self, client: Client, name: str, wish: Wish, queue: str) -> None:
        level, algorithm = CIPHERS[wish.cipher] if wish.cipher else (0, 0)
        draft = Draft(
            body=self._body(TO_LETTER, name),
            label=f"{name}/{queue}",
            transactional=queue == "orders",
            privacy_level=level,
            encryption_algorithm=algorithm,
            signer=SIGNING if wish.kind else "",
            hash_algorithm=wish.hash_algorithm,
            sender_id=USER_TEXT if wish.also == "named" else "",
            response_queue=ANSWERS if wish.also == "answered" else "",
            journal_negative=True,
            admin_queue=r"ours\private$\acks",
            acknowledgments=ACKNOWLEDGE_ARRIVAL | REPORT_NO_ARRIVAL,
        )
        names = (queue, TAKES[queue]) if wish.also == "listed" else (queue,)
        await client.send_many(",".join(f"letter\\private$\\{each}" for each in names), [draft])

    async def _heard_by_ours(self, client: Client, wishes: Mapping[str, Wish]) -> None:
        """Check that the peer has reported each outcome: to the administration queue, and by a FinalAck for each
        refusal.
        """
        expected: Counter[tuple[str, str]] = Counter()
        letters: set[tuple[str, str]] = set()
        for name, wish in wishes.items():
            for queue in TAKES:
                label, said = f"{name}/{queue}", self.outcomes[TO_LETTER, name, queue]
                copies = 2 if wish.also == "listed" else 1
                if not said.startswith("NACK"):
                    expected[label, "ACK_REACH_QUEUE"] = copies
                elif self.insecure_nacks or queue == "orders":  # Ours tells itself what a FinalAck says.
                    expected[label, said] = copies
                if said.startswith("NACK") and queue == "orders":
                    letters |= {(label, said)}
        assert Counter(await self._taken(client, "acks", expected.total())) == expected
        count = sum(wishes[label.partition("/")[0]].also == "listed" for label, _ in letters) + len(letters)
        assert set(await self._taken(client, "system$;deadxact", count)) == letters

    async def _taken(self, client: Client, queue: str, count: int) -> list[tuple[str, str]]:
        """Return the label and the class of `count` messages from a queue of our node."""
        taken: list[tuple[str, str]] = []
        while len(taken) < count:
            messages = await client.receive(queue, limit=500, timeout_s=TOO_LONG_S)
            assert messages, f"{queue} has {len(taken)} of {count}: {taken}"
            taken += [(message.label, message.message_class) for message in messages]
        assert await client.receive(queue, timeout_s=0) == []
        return taken
