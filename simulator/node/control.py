"""The protocol between a node and its clients, over a Unix domain socket that only their user can reach.

    frame    length u32 (of the payload), operation u8, request u32, all little-endian; then the payload
    request  an `Operation`, numbered by the client; several may be outstanding
    payload  msgpack; for an operation from 32 on, its Operation Instance Identifier comes first, one byte
    answer   `DONE` or `FAILED`, with the request's number; in the order in which answers are ready

Operations below 32 may be repeated at will. Operations from 32 on change something, and are performed once. After a
broken connection, the client introduces itself as the same invoker (HELLO) and invokes them again under the same
identifiers ("Duplicate Operation Detection Support"; mqproto/edge/operations.py). So a message is received in two
steps: RECEIVE hands it out until the connection ends, and SETTLE, performed once, takes it from the queue.

A client that disconnects abandons its receives, and messages that it did not settle return to their places. Messages
cross the socket as packets, and the client decodes them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from construct import Int8ul, Int32ul, Struct

from mqproto.base.errors import FormatNameError, MqprotoError, QuotaExceeded, UsageError
from mqproto.edge.operations import IDENTIFIERS, is_numbered, parted, with_identifier
from mqproto.manager.status import NodeStatus, PeersStatus
from mqproto.manager.whereabouts import MessageStatus
from mqproto.messages.drafts import Draft
from mqproto.neighbours.peerstatus import MetStatus
from mqproto.simulator.topology import DeclaredQueue, TopologyError

VERSION: Final = 10
REQUEST_LIMIT_BYTES: Final = 16 * 2**20
"""The maximum size of the payload of a request, in bytes. An answer may have any size."""
OUTSTANDING_LIMIT: Final = 64
"""The maximum number of one client's requests that may be waiting for an answer."""
PROFILE: Final = 64
"""The number of an invoker's instance identifiers that a node keeps, together with their outcomes."""
BIRTH_BYTES: Final = 16
"""The size, in bytes, of an invoker's birth, which only its node can read."""
LASTING_KEPT_DAYS: Final = 30
"""The number of days of running time for which a node remembers an absent client that has a journal."""
BATCH_LIMIT: Final = 500
"""The maximum number of messages in one request to send, receive or peek. The sends of one request form one
transaction."""

head = Struct("length" / Int32ul, "operation" / Int8ul, "request" / Int32ul)
_head = struct.Struct("<IBI")
assert _head.size == head.sizeof()
HEAD_BYTES: Final = _head.size


class Operation(IntEnum):
    """The requests and answers. Requests below 32 may be repeated at will; requests from 32 to 63 are numbered, and are
    performed only once.
    """

    HELLO = 0
    QUEUES = 1
    PEEK = 2
    ABANDON = 3
    HOLD = 4
    EXPLAIN = 5
    RECEIVE = 6
    PEERS = 7
    BLOCK = 8
    DECLARED = 9
    PEER = 10
    SCRUB = 11
    KEYS = 12
    SEND = 32
    SETTLE = 33
    SEND_TOGETHER = 34
    PURGE = 35
    DELETE = 36
    SEND_BACK = 37
    MAKE = 38
    CHANGE = 39
    DONE = 64
    FAILED = 65


class ControlFrame(NamedTuple):
    """One request or answer; `identifier` is used only for numbered operations, and is not part of the payload."""

    operation: int
    request: int
    payload: bytes
    identifier: int | None = None


class ControlError(MqprotoError):
    """The bytes do not form a frame, or a frame is not a valid request.

    request: the number of the invalid request, or 0 if it is unknown.
    """

    def __init__(self, text: str, request: int = 0) -> None:
        super().__init__(text)
        self.request = request


class InDoubt(MqprotoError):  # noqa: N818
    """Nobody can tell whether an operation was carried out."""


class RolledBack(MqprotoError):  # noqa: N818
    """A transaction ended without a commit, because its connection or node ended. Its messages were restored to their
    places.
    """


class Nothing(msgspec.Struct, array_like=True):
    """The parameters of a request without parameters, and the result of one without a result."""


class InvokerIntroduction(msgspec.Struct, array_like=True):
    """Names, in 16 bytes, the invoker of numbered operations on this connection. The invoker's earlier connection ends
    now.

    lasting: whether the invoker survives its process, and may come back after a long time.
    following: the identifier of the invoker's next operation, 0 to 255. With it, a reused identifier is not taken for
        that of an old operation.
    birth: the `birth` in the invoker's last `Hello`; empty if there was none, or if the invoker does not keep it. If it
        is empty, the node relies on `following` and on the first identifier that is invoked.
    """

    invoker: bytes = b""
    lasting: bool = False
    following: Annotated[int, msgspec.Meta(ge=0, lt=IDENTIFIERS)] | None = None
    birth: Annotated[bytes, msgspec.Meta(max_length=BIRTH_BYTES)] = b""


class Hello(msgspec.Struct, array_like=True):
    """The node's identity. Only this frame is certain to have the same form in every `version`.

    life: a number that is new each time the node starts. Everything that the node kept only in memory is then gone.
    profile: how many instance identifiers the node keeps for each invoker.
    birth: distinguishes a forgotten invoker from a new one. The invoker stores it before it invokes anything, on disk
        if the invoker is lasting, and shows it in its introductions from then on.
    remembered: False if the node has forgotten the invoker's earlier operations. Then nobody knows whether an operation
        without an outcome was performed, and it may not be invoked again.
    """

    version: int
    node: str
    guid: bytes
    life: int = 0
    profile: int = 0
    birth: bytes = b""
    remembered: bool = True


class Send(msgspec.Struct, array_like=True):
    """Messages for one or several destinations, whose names are separated by commas. Either all are accepted, or none.
    Either all are transactional, each in its own transaction, or none.

    A queue may be given by any of its names, even in the drafts.
    """

    destination: str
    drafts: list[Draft]


class SendTogether(msgspec.Struct, array_like=True):
    """One transaction: transactional messages, each with its destination. Either all of them are accepted, or none."""

    messages: list[tuple[str, Draft]]


class Sent(msgspec.Struct, array_like=True):
    """The messages are accepted, and are on disk if they are recoverable. Copies of a message are adjacent, in the
    order in which the destinations were named.

    runs: the messages' ordinals, as a pair (first, count) for each run of successive ordinals.
    """

    runs: list[tuple[int, int]]

    @classmethod
    def of(cls, ordinals: Iterable[int]) -> Sent:
        """Return a Sent for messages with these ordinals."""
        runs: list[list[int]] = []
        following = -1
        for ordinal in ordinals:
            if ordinal != following:
                runs.append([ordinal, 0])
            runs[-1][1] += 1
            following = ordinal + 1
        return cls([(first, count) for first, count in runs])

    @property
    def ordinals(self) -> list[int]:
        """The ordinal of each message."""
        return [ordinal for first, count in self.runs for ordinal in range(first, first + count)]


class Receive(msgspec.Struct, array_like=True):
    """Asks for up to `limit` messages. The answer comes as soon as there is at least one message, or comes without
    messages after `timeout_s`; null waits forever. The messages are handed out in a transaction. SETTLE ends it, and
    the end of the connection rolls it back.

    chosen: if given, exactly the messages with these sources and ordinals are taken instead, without waiting.
    fence: 0, or the receiver's epoch. Receivers with lower epochs give way: their unsettled messages go back first, and
        they get nothing more.
    """

    queue: str
    limit: int
    timeout_s: float | None
    chosen: list[tuple[bytes, int]] | None = None
    fence: Annotated[int, msgspec.Meta(ge=0)] = 0


class Messages(msgspec.Struct, array_like=True):
    """Packets without a SessionHeader, and the number of times that each was handed out, including this time; -1 if
    that number is unknown.
    """

    transaction: int
    packets: list[bytes]
    delivery_counts: list[int]


class Peek(msgspec.Struct, array_like=True):
    """Asks for the first messages of a queue. The answer contains only messages that are in the node's memory."""

    queue: str
    limit: int


class Settlement(IntEnum):
    """How a transaction that received messages ends."""

    ROLL_BACK = 0
    """The messages go back to their places in the queue."""
    COMMIT = 1
    REJECT = 2
    """The messages are refused for good; their sender is told if it asked for that."""


class Settle(msgspec.Struct, array_like=True):
    """Ends a transaction of this client.

    messages: the messages to send in the same transaction if it commits, as in `SendTogether`.
    """

    transaction: int
    settlement: Settlement
    messages: list[tuple[str, Draft]] = []


class Abandon(msgspec.Struct, array_like=True):
    """Ends the wait of a receive, which is answered at once. A receive that already has an answer is not affected."""

    request: int


class Hold(msgspec.Struct, array_like=True):
    """Pauses or resumes all outgoing queues to which a name refers. Repeating the request changes nothing."""

    queue: str
    on_hold: bool


class Block(msgspec.Struct, array_like=True):
    """Blocks or unblocks connections from an address or a network.

    forced: whether to do so even if a node of the topology connects from there.
    """

    network: str
    is_blocked: bool
    forced: bool


class Blocked(msgspec.Struct, array_like=True):
    """The address or network that is now blocked or unblocked, and the number of sessions that end."""

    network: str
    sessions: int


class PeerFacts(msgspec.Struct, array_like=True):
    """Facts about an undeclared queue manager.

    host: its address or name; empty to forget the queue manager, or if it has moved to where its GUID was last seen.
    guid: the GUID of the queue manager at `host`; empty if unknown.
    keys: its public keys, keyed by purpose; each is the content of a file from `mqproto keys make`.
    also: its further addresses.
    """

    name: str
    host: str = ""
    guid: bytes = b""
    has_moved: bool = False
    keys: dict[str, bytes] = {}
    also: list[str] = []


class Explain(msgspec.Struct, array_like=True):
    """Asks about a destination queue or node, or about a message.

    subject: a name, or the identifier of a message; empty for all queues.
    limit: how many messages of each queue to report; ignored if the request is about all queues.
    """

    subject: str
    limit: int


class QueueReceiver(msgspec.Struct, array_like=True):
    """An application that receives from a queue: it waits for messages, or has unsettled ones.

    pid, uid, user: the process that connected, according to the kernel; None, None and an empty text if it is unknown.
    since_s: the time, in UTC, at which it first received from the queue over this connection.
    messages: the number of messages that it has not settled.
    given_s: the time, in UTC, at which it was given the first of these messages.
    program: the first words of its command; empty if the system does not report it.
    """

    queue: str
    pid: int | None
    uid: int | None
    user: str
    since_s: int
    messages: int = 0
    given_s: int | None = None
    program: str = ""


class Explanation(msgspec.Struct, array_like=True):
    """A node's answer about the queues, sequences and messages of a subject.

    The oldest messages of each queue come first.

    receivers: the receivers of these queues.
    unlisted_receivers: how many further receivers are not listed.
    """

    status: NodeStatus
    messages: list[MessageStatus]
    receivers: list[QueueReceiver] = []
    unlisted_receivers: int = 0


class QueueWish(msgspec.Struct, array_like=True):
    """A queue to make or to change. None stands for the default of a new queue, or for the current value of an existing
    one.

    queue: a path name, or the queue's own name.
    transactional, public: whether the queue is transactional, and its public GUID; both only for a new queue.
    quota_kb, journal_quota_kb: the quotas of the queue and its journal; 0 for no limit.
    authenticated, privacy, weak_ciphers, senders: parts of the queue's Protection.
    """

    queue: str
    transactional: bool | None = None
    public: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)] | None = None
    quota_kb: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] | None = None
    journal: bool | None = None
    journal_quota_kb: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] | None = None
    strangers: bool | None = None
    authenticated: bool | None = None
    privacy: str | None = None
    weak_ciphers: list[str] | None = None
    senders: list[str] | None = None


class Declared(msgspec.Struct, array_like=True):
    """The queues of a node, as they are now."""

    queues: list[DeclaredQueue]


class OneQueue(msgspec.Struct, array_like=True):
    """A queue of the node or, for PURGE, also an outgoing queue."""

    queue: str


class SendBack(msgspec.Struct, array_like=True):
    """The messages in a dead-letter queue or a journal that are to be sent again, by source and ordinal; null for
    all.
    """

    queue: str
    messages: list[tuple[bytes, int]] | None


class Count(msgspec.Struct, array_like=True):
    """The number of messages that were affected."""

    messages: int


class Failure(msgspec.Struct, array_like=True):
    """The error of a request: its name, its one line of text, and the name that the topology lacks, if any."""

    kind: str
    text: str
    lacks: str = ""

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return the failure that a client gets for an error."""
        return cls(type(error).__name__, str(error), getattr(error, "lacks", ""))


REQUESTS: Final[dict[int, type[msgspec.Struct]]] = {
    Operation.HELLO: InvokerIntroduction,
    Operation.QUEUES: Nothing,
    Operation.PEEK: Peek,
    Operation.ABANDON: Abandon,
    Operation.HOLD: Hold,
    Operation.PEERS: Nothing,
    Operation.BLOCK: Block,
    Operation.PEER: PeerFacts,
    Operation.KEYS: Nothing,
    Operation.EXPLAIN: Explain,
    Operation.SCRUB: Nothing,
    Operation.SEND: Send,
    Operation.RECEIVE: Receive,
    Operation.SETTLE: Settle,
    Operation.SEND_TOGETHER: SendTogether,
    Operation.PURGE: OneQueue,
    Operation.DELETE: OneQueue,
    Operation.SEND_BACK: SendBack,
    Operation.DECLARED: Nothing,
    Operation.MAKE: QueueWish,
    Operation.CHANGE: QueueWish,
}
"""The parameters of each request, as a type."""

RESULTS: Final[dict[int, Any]] = {
    Operation.HELLO: Hello,
    Operation.QUEUES: NodeStatus,
    Operation.PEEK: Messages,
    Operation.ABANDON: Nothing,
    Operation.HOLD: Nothing,
    Operation.PEERS: PeersStatus,
    Operation.BLOCK: Blocked,
    Operation.PEER: MetStatus,
    Operation.KEYS: Nothing,
    Operation.EXPLAIN: Explanation,
    Operation.SCRUB: Nothing,
    Operation.SEND: Sent,
    Operation.RECEIVE: Messages,
    Operation.SETTLE: Sent,
    Operation.SEND_TOGETHER: Sent,
    Operation.PURGE: Count,
    Operation.DELETE: Count,
    Operation.SEND_BACK: Count,
    Operation.DECLARED: Declared,
    Operation.MAKE: DeclaredQueue,
    Operation.CHANGE: DeclaredQueue,
}
"""The result in the DONE of each request, as a type."""

NUMBERED: Final = frozenset(operation for operation in REQUESTS if is_numbered(operation))
"""The requests that carry an instance identifier."""

FAILURES: Final[dict[str, type[MqprotoError]]] = {
    kind.__name__: kind
    for kind in (TopologyError, FormatNameError, QuotaExceeded, UsageError, ControlError, InDoubt, RolledBack)
}
"""The errors that a FAILED may name, keyed by name. A client raises the same errors."""

LARGE_BYTES: Final = 1 << 16
_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final = {operation: msgspec.msgpack.Decoder(kind) for operation, kind in REQUESTS.items()}
_result_decoders: Final = {operation: msgspec.msgpack.Decoder(kind) for operation, kind in RESULTS.items()}
_failure_decoder: Final = msgspec.msgpack.Decoder(Failure)


def encode(value: object) -> bytes:
    """Return the payload of a frame.

    A large payload goes into a buffer that has room for it, because msgspec 0.22 ends the process with SIGSEGV if
    memory is short when it enlarges its own buffer. Our buffer raises MemoryError instead.
    """
    bulk_bytes = _bulk_bytes(value)
    if bulk_bytes < LARGE_BYTES:
        return _encoder.encode(value)
    buffer = bytearray(bulk_bytes + bulk_bytes // 8 + LARGE_BYTES)
    _encoder.encode_into(value, buffer)
    return bytes(buffer)


def _bulk_bytes(value: object) -> int:
    """Return the total bytes of the bodies, extensions and packets in a payload."""
    if isinstance(value, Send):
        drafts = value.drafts
    elif isinstance(value, SendTogether):
        drafts = [draft for _, draft in value.messages]
    else:  # In any other large payload, the packets are large.
        return sum(map(len, getattr(value, "packets", ())))
    return sum(len(draft.body) + len(draft.extension) for draft in drafts)


def frame(operation: int, request: int, payload: Any) -> bytes:
    """Return one frame, ready to send."""
    return framed(operation, request, encode(payload))


def framed(operation: int, request: int, data: bytes, identifier: int | None = None) -> bytes:
    """Return a frame from an encoded payload and, for a numbered operation, its identifier."""
    if identifier is not None:
        data = with_identifier(identifier, data)
    return _head.pack(len(data), operation, request) + data


def failed(request: int, error: Exception) -> bytes:
    """Return the answer to a failed request."""
    return frame(Operation.FAILED, request, Failure.of(error))


def failure(error: Exception) -> ControlFrame:
    """Return a FAILED in the form that a client gets. The request's number is added when it is framed."""
    return ControlFrame(Operation.FAILED, 0, encode(Failure.of(error)))


def done(result: object) -> ControlFrame:
    """Return a DONE in the form that a client gets. The request's number is added when it is framed."""
    return ControlFrame(Operation.DONE, 0, encode(result))


def kept(answer: ControlFrame) -> bytes:
    """Return an answer in the form in which a node keeps it: one byte for DONE or FAILED, and the payload."""
    return bytes((answer.operation,)) + answer.payload


def recalled(outcome: bytes) -> ControlFrame:
    """Return the answer that is kept in this form."""
    return ControlFrame(outcome[0], 0, outcome[1:])


def parameters(request: ControlFrame) -> Any:
    """Return the parameters of a request.

    Raises:
        ControlError: there is no such request, or its parameters are wrong.
    """
    decoder = _decoders.get(request.operation)
    if decoder is None:
        raise ControlError(f"no request has the number {request.operation}", request.request)
    try:
        return decoder.decode(request.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        name = Operation(request.operation).name
        raise ControlError(f"{name} has other parameters: {error}", request.request) from None


def result(operation: Operation, answer: ControlFrame) -> Any:
    """Return the result in an answer.

    Raises:
        UsageError, FormatNameError, TopologyError: the request was wrong; the error says what the node reported.
        QuotaExceeded, InDoubt, RolledBack: the node reported this error.
        ControlError: the answer is not valid, or the node reported this error.
    """
    try:
        if answer.operation == Operation.DONE:
            return _result_decoders[operation].decode(answer.payload)
        failure = _failure_decoder.decode(answer.payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ControlError(f"{operation.name} was answered by something else: {error}") from None
    if failure.kind == TopologyError.__name__:
        raise TopologyError(failure.text, failure.lacks)
    raise FAILURES.get(failure.kind, UsageError)(failure.text)


class FrameBuffer:
    """Takes bytes as they arrive, and returns whole frames.

    Args:
        limit_bytes: the maximum size of a payload. A longer payload is refused as soon as its head arrives, before any
            of it is kept.
    """

    def __init__(self, limit_bytes: int = REQUEST_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()
        self._needed = HEAD_BYTES

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[ControlFrame]:
        """Yield the frames that these bytes complete, in order.

        Raises:
            ControlError: a frame is too long.
        """
        kept = self._kept
        kept += data
        at = 0
        while len(kept) - at >= self._needed:
            length, operation, request = _head.unpack_from(kept, at)
            if length > self._limit_bytes:
                raise ControlError(
                    f"a frame has {length:,} bytes; at most {self._limit_bytes:,} are read", request
                )
            end = at + HEAD_BYTES + length
            if end > len(kept):
                self._needed = HEAD_BYTES + length
                break
            self._needed = HEAD_BYTES
            payload = bytes(memoryview(kept)[at + HEAD_BYTES : end])
            identifier = None
            if operation in NUMBERED:
                if not payload:
                    raise ControlError(f"{Operation(operation).name} needs its instance identifier", request)
                identifier, payload = parted(payload)
            yield ControlFrame(operation, request, payload, identifier)
            at = end
        del kept[:at]
