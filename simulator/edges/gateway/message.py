"""A message as a producer handed it in, and the queue that it is for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from mqproto.base.errors import UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.client.envelope import Envelope
from mqproto.simulator.edges.forwarding import ENCODING
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.resolve import is_bare


class GatewayQueue(NamedTuple):
    """A queue to which messages are sent.

    name: a name such as `destination\\orders`, which is the same whichever name the producer used.
    """

    name: str
    transactional: bool


def queue_named(topology: Topology, node: str, name: str) -> GatewayQueue:
    """Return the queue that a producer means by a name.

    Raises:
        TopologyError, FormatNameError: there is no such queue, or applications cannot send to it.
    """
    whole = f"{topology.host_of(name).name}\\{name}" if is_bare(name) else name
    found = topology.resolve(whole, at=node)
    if found.queue is None or found.local_name != found.queue.name:
        raise UsageError(f"{name} is a queue of the system's: name one that messages are sent to")
    return GatewayQueue(f"{found.node.name}\\{found.queue.name}", found.queue.transactional)


def queues_of(topology: Topology) -> list[GatewayQueue]:
    """Return all queues to which messages can be sent."""
    return [
        GatewayQueue(f"{node.name}\\{queue.name}", queue.transactional)
        for node in topology.nodes.values()
        for queue in node.queues.values()
    ]


class KeptFacts(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What the row of a message keeps for its gateway.

    admin_queue: the producer's own administration queue, which gets the acknowledgments instead of the row.
    callback: a URL that gets a report about the message's end.
    given: the id in the form that its producer used, if somebody gets such a report.
    """

    admin_queue: str = ""
    callback: str = ""
    given: str = ""

    def encoded(self) -> bytes:
        """Return it as bytes; none if it says nothing."""
        return b"" if self == NOTHING else msgspec.msgpack.encode(self)

    @classmethod
    def of(cls, data: bytes) -> KeptFacts:
        """Return what these bytes say."""
        return _abouts.decode(data) if data else NOTHING


NOTHING: Final = KeptFacts()
_abouts: Final = msgspec.msgpack.Decoder(KeptFacts)


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """A message as a producer handed it in.

    key: the producer's id, preceded by the producer's name if it has one (`tokens.Opened`); empty for none, in which
        case duplicates are not noticed.
    headers: the forwarded headers in the message's envelope.
    own_extension: whether the extension is the producer's, rather than an envelope.
    holder: the name of the token that the request used, for the log; empty for none.
    """

    queue: GatewayQueue
    key: str
    content_type: str
    draft: Draft
    about: KeptFacts = NOTHING
    headers: Mapping[str, str] = field(default_factory=dict)
    holder: str = ""
    own_extension: bool = False

    def fingerprint(self) -> bytes:
        """Return a digest of the content.

        The only forwarded header that it covers is Content-Encoding, because a retry has a new trace.
        """
        draft = self.draft
        encoding = self.headers.get(ENCODING, "")
        parts = [self.content_type.encode(), draft.label.encode("utf-8"), draft.body]
        # Of others the fingerprint is what it was before there were these, so that an id of then is known again.
        if draft.body_type or draft.application_tag or self.own_extension:
            extension = draft.extension
            if not self.own_extension:
                extension = Envelope(content_type=self.content_type, producer_key=self.key).as_extension()
            parts += [str(draft.body_type).encode(), str(draft.application_tag).encode(), extension]
        if encoding:
            parts.append(f"{ENCODING}: {encoding}".encode())
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.digest()
