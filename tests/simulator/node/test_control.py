"""The frames on a control socket, however they are split; nothing that a client sends makes the node end."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import NoneType
from typing import Final

import msgspec
import pytest
import trio
from hypothesis import given, strategies as st

from mqproto.base.errors import FormatNameError, MqprotoError, QuotaExceeded, UsageError
from mqproto.messages.drafts import Draft
from mqproto.simulator.client import connect
from mqproto.simulator.node import control, service
from mqproto.simulator.node.control import (
    ControlError,
    ControlFrame,
    FrameBuffer,
    InDoubt,
    Operation,
    RolledBack,
    Settlement,
)
from mqproto.simulator.topology import Topology, TopologyError, load, places
from tests.memory import memory_folder
from tests.simulator.running import running

INVOKER: Final = bytes(range(16))
HELLO: Final = control.frame(Operation.HELLO, 0, control.InvokerIntroduction(INVOKER))


@st.composite
def frames(draw: st.DrawFn) -> ControlFrame:
    """Draw any frame; a numbered operation has its identifier."""
    operation = draw(st.integers(0, 255) | st.sampled_from(sorted(control.REQUESTS)))
    identifier = draw(st.integers(0, 255)) if operation in control.NUMBERED else None
    return ControlFrame(operation, draw(st.integers(0, 2**32 - 1)), draw(st.binary(max_size=40)), identifier)


def in_bytes(frame: ControlFrame) -> bytes:
    payload = frame.payload if frame.identifier is None else bytes([frame.identifier]) + frame.payload
    head = {"length": len(payload), "operation": frame.operation, "request": frame.request}
    data: bytes = control.head.build(head)
    return data + payload


def requested(operation: Operation, request: int, wish: msgspec.Struct, identifier: int = 0) -> bytes:
    """Return a request in the form in which a client sends it."""
    numbered = identifier if operation in control.NUMBERED else None
    return control.framed(operation, request, control.encode(wish), numbered)


@given(sent=st.lists(frames(), max_size=5), data=st.data())
def test_framing_is_blind_to_how_the_stream_was_cut(sent: list[ControlFrame], data: st.DataObject) -> None:
    stream = b"".join(map(in_bytes, sent))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    buffer = FrameBuffer()
    found = [
        frame
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for frame in buffer.feed(stream[start:end])
    ]
    assert found == sent


@given(over=st.integers(1, 2**32 - 1 - 100))
def test_a_frame_that_is_too_long_is_refused_on_its_head(over: int) -> None:
    head = control.head.build({"length": 100 + over, "operation": 0, "request": 7})
    with pytest.raises(ControlError, match="at most 100") as refused:
        list(FrameBuffer(limit_bytes=100).feed(head))
    assert refused.value.request == 7


@given(frame=frames())
def test_any_frame_is_a_request_or_a_control_error(frame: ControlFrame) -> None:
    parameters = None
    with suppress(ControlError):
        parameters = control.parameters(frame)
    assert isinstance(parameters, control.REQUESTS.get(frame.operation, NoneType) | None)


@given(
    drafts=st.lists(
        st.builds(Draft, body=st.binary(), label=st.text(st.characters(exclude_categories=["Cs"])))
    )
)
def test_drafts_cross_as_they_are(drafts: list[Draft]) -> None:
    [frame] = FrameBuffer().feed(requested(Operation.SEND, 1, control.Send("a", drafts)))
    assert control.parameters(frame).drafts == drafts


def test_what_may_be_repeated_at_will_has_a_number_below_32() -> None:
    """Submission and Delivery are non-idempotent; their controls are idempotent.

    "Duplicate Operation Detection Support"; Operation Value
    """
    assert {
        Operation.SEND,
        Operation.SETTLE,
        Operation.SEND_TOGETHER,
        Operation.PURGE,
        Operation.DELETE,
        Operation.SEND_BACK,
        Operation.MAKE,
        Operation.CHANGE,
    } == control.NUMBERED
    assert all(operation < 64 for operation in control.REQUESTS)
    assert set(control.RESULTS) == set(control.REQUESTS)


@pytest.mark.parametrize(
    "kind", [UsageError, FormatNameError, TopologyError, ControlError, InDoubt, RolledBack]
)
def test_an_error_arrives_as_what_it_was(kind: type[MqprotoError]) -> None:
    [answer] = FrameBuffer().feed(control.failed(3, kind("what and what to do")))
    with pytest.raises(kind, match=r"^what and what to do$") as raised:
        control.result(Operation.SEND, answer)
    assert type(raised.value) is kind


# With a node


@pytest.fixture
def pair() -> Topology:
    return load("three-node").with_free_ports()


@asynccontextmanager
async def raw(topology: Topology, directory: Path) -> AsyncIterator[trio.SocketStream]:
    """Yield the bare control socket of a running node, and check that the node still answers at the end."""
    async with running(topology, "destination", directory):
        path = places.socket_path(directory, "destination")
        async with await trio.open_unix_socket(path) as stream:
            yield stream
        async with connect(topology, "destination", directory) as client:
            await client.send(r".\private$\notes", b"still here")


async def everything(stream: trio.SocketStream) -> list[ControlFrame]:
    buffer = FrameBuffer()
    return [frame async for chunk in stream for frame in buffer.feed(chunk)]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"\xff" * 9, "a frame has 4,294,967,295 bytes"),
        (control.frame(31, 5, control.Nothing()), "no request has the number 31"),
        (requested(Operation.SEND, 5, control.Peek("orders", 1)), "SEND has other parameters"),
        (in_bytes(ControlFrame(Operation.SEND, 5, b"")), "SEND needs its instance identifier"),
        (
            requested(Operation.PURGE, 5, control.OneQueue("orders")),
            "PURGE is performed once for whoever introduces",
        ),
        (in_bytes(ControlFrame(Operation.PEEK, 5, b"\xc1")), "PEEK has other parameters"),
        (
            in_bytes(
                ControlFrame(
                    Operation.PEEK,
                    5,
                    control.frame(Operation.PEEK, 5, control.Peek("~", 1))[9:].replace(b"~", b"\xff"),
                )
            ),
            "PEEK has other parameters",
        ),
    ],
)
async def test_a_broken_frame_closes_its_client_with_an_error(
    pair: Topology, tmp_path: Path, broken: bytes, reason: str
) -> None:
    async with raw(pair, tmp_path) as stream:
        await stream.send_all(broken + control.frame(Operation.HELLO, 6, control.Nothing()))
        [answer] = await everything(stream)
    failure = msgspec.msgpack.decode(answer.payload, type=control.Failure)
    assert answer.operation == Operation.FAILED
    assert failure.text.startswith(reason)


async def test_requests_before_a_broken_frame_are_answered(pair: Topology, tmp_path: Path) -> None:
    async with raw(pair, tmp_path) as stream:
        await stream.send_all(control.frame(Operation.HELLO, 1, control.Nothing()) + b"\xff" * 9)
        assert [frame.operation for frame in await everything(stream)] == [Operation.DONE, Operation.FAILED]


@pytest.mark.parametrize(
    ("operation", "payload", "text"),
    [
        (Operation.RECEIVE, control.Receive("orders", 501, None), "limit is 501: must be 1 to 500"),
        (Operation.PEEK, control.Peek("orders", 0), "limit is 0: must be 1 to 500"),
        (Operation.RECEIVE, control.Receive("orders", 1, -1.0), "timeout_s is -1.0"),
        (Operation.RECEIVE, control.Receive("orders", 1, float("nan")), "timeout_s is nan"),
        (Operation.SETTLE, control.Settle(77, Settlement.COMMIT), "transaction 77 is not open"),
        (Operation.HELLO, control.InvokerIntroduction(b"me"), "an invoker's name of 2 bytes: it has 16"),
        (Operation.SEND, control.Send("destination\\q\\q\\q", [Draft(body=b"")]), ""),
        (
            Operation.SEND_TOGETHER,
            control.SendTogether([(r".\private$\orders", Draft(body=b"", transactional=True))] * 501),
            "501 messages in one request: at most 500",
        ),
        (
            Operation.SEND_TOGETHER,
            control.SendTogether([(r".\private$\notes", Draft(body=b""))]),
            "the messages of a transaction are transactional",
        ),
        (
            Operation.HOLD,
            control.Hold("orders", True),
            "destination has no outgoing queue to orders; there are: none",
        ),
        (Operation.PURGE, control.OneQueue("nothing"), "destination has no outgoing queue to nothing"),
        (Operation.DELETE, control.OneQueue(r".\system$;deadxact"), "system$;deadxact belongs to the system"),
        (
            Operation.DELETE,
            control.OneQueue("ordres"),
            "destination has no queue 'ordres'; did you mean 'orders'",
        ),
        (
            Operation.MAKE,
            control.QueueWish("ORDERS"),
            "orders has this name already: choose another, or delete",
        ),
        (Operation.MAKE, control.QueueWish("two+words"), "two+words: a queue name cannot contain '+'"),
        (
            Operation.MAKE,
            control.QueueWish(r"sender\private$\more"),
            r"sender\private$\more is a queue of sender: ",
        ),
        (
            Operation.MAKE,
            control.QueueWish("orders;journal"),
            "orders;journal: journals, subqueues and the system's queues cannot",
        ),
        (
            Operation.MAKE,
            control.QueueWish("journal$"),
            "journal$: journals, subqueues and the system's queues cannot",
        ),
        (
            Operation.MAKE,
            control.QueueWish("more", journal_quota_kb=1),
            "queue 'more': journal_quota_kb bounds no",
        ),
        (Operation.CHANGE, control.QueueWish("ordres"), "destination has no queue 'ordres'; did"),
        (Operation.CHANGE, control.QueueWish("deadxact"), "system$;deadxact belongs to the system"),
        (
            Operation.CHANGE,
            control.QueueWish("orders", transactional=False),
            "orders stays what it was made as",
        ),
        (
            Operation.SEND_BACK,
            control.SendBack("orders", None),
            "orders is neither a dead-letter queue nor a journal",
        ),
        (
            Operation.SEND_BACK,
            control.SendBack("deadxact", [(bytes(16), 7)]),
            "system$;deadxact has no message 00000000-0000-0000-0000-000000000000\\7",
        ),
        (
            Operation.SEND,
            control.Send(r".\private$\notes", [Draft(body=b"", body_type=2**32)]),
            "body_type is 4294967296",
        ),
        (
            Operation.SEND,
            control.Send(r".\private$\notes", [Draft(body=b"")] * 501),
            "501 messages in one request: at most 500",
        ),
        (
            Operation.SEND,
            control.Send(r".\private$\notes", [Draft(body=b""), Draft(body=b"", transactional=True)]),
            "messages sent together are all transactional or none is",
        ),
    ],
)
async def test_a_wrong_request_is_answered_and_its_client_goes_on(
    pair: Topology, tmp_path: Path, operation: Operation, payload: msgspec.Struct, text: str
) -> None:
    async with raw(pair, tmp_path) as stream:
        hello = control.frame(Operation.HELLO, 2, control.Nothing())
        await stream.send_all(HELLO + requested(operation, 1, payload) + hello)
        await stream.send_eof()
        _, wrong, right = await everything(stream)
    assert (wrong.operation, wrong.request) == (Operation.FAILED, 1)
    assert msgspec.msgpack.decode(wrong.payload, type=control.Failure).text.startswith(text)
    assert (right.operation, right.request) == (Operation.DONE, 2)


async def test_a_client_has_a_limit_of_open_receives(pair: Topology, tmp_path: Path) -> None:
    wish = control.Receive("orders", 1, None)
    async with raw(pair, tmp_path) as stream:
        for number in range(control.OUTSTANDING_LIMIT + 1):
            await stream.send_all(control.frame(Operation.RECEIVE, number, wish))
        [answer] = FrameBuffer().feed(await stream.receive_some())
        assert (answer.operation, answer.request) == (Operation.FAILED, control.OUTSTANDING_LIMIT)


async def test_one_client_too_many_is_served_when_another_has_left(
    pair: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CLIENT_LIMIT", 2)
    question = control.frame(Operation.HELLO, 1, control.Nothing())
    async with running(pair, "destination", tmp_path):
        path = places.socket_path(tmp_path, "destination")
        streams = [await trio.open_unix_socket(path) for _ in range(3)]
        await streams[2].send_all(question)
        for stream in streams[:2]:
            await stream.send_all(question)
            assert await stream.receive_some()
        with pytest.raises(BlockingIOError):
            streams[2].socket._sock.recv(1, socket.MSG_DONTWAIT)  # type: ignore[attr-defined]
        await streams[0].aclose()
        assert await streams[2].receive_some()
        for stream in streams[1:]:
            await stream.aclose()


async def test_a_transaction_is_settled_by_the_client_that_has_it(pair: Topology, tmp_path: Path) -> None:
    async with raw(pair, tmp_path) as stream, connect(pair, "destination", tmp_path) as client:
        await client.send(r".\private$\orders", b"one", transactional=True)
        life = client._exchange.hello.life
        await stream.send_all(HELLO)
        await stream.receive_some()
        async with client.transaction("orders"):
            for number in range(1, 10):
                settle = control.Settle((life << 32) + number, Settlement.COMMIT)
                await stream.send_all(requested(Operation.SETTLE, number, settle, number))
                [answer] = FrameBuffer().feed(await stream.receive_some())
                assert answer.operation == Operation.FAILED
                assert b"RolledBack" in answer.payload


async def test_only_its_user_reaches_a_control_socket(pair: Topology, tmp_path: Path) -> None:
    async with running(pair, "destination", tmp_path):
        path = places.socket_path(tmp_path, "destination")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_for_sockets_that_others_may_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The path of a socket has to be short, and tmp_path is not wherever pytest has it.
    with memory_folder() as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        folder = places.runtime_directory()
        folder.mkdir()
        folder.chmod(0o755)
        with pytest.raises(UsageError, match="only you can enter"):
            places.prepared(places.socket_path(tmp_path, "a"))
        folder.rmdir()
        folder.symlink_to(tmp_path)
        with pytest.raises(UsageError, match="only you can enter"):
            places.prepared(places.socket_path(tmp_path, "a"))


def test_a_socket_path_too_long_for_the_kernel_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 90)))
    with pytest.raises(UsageError, match="XDG_RUNTIME_DIR"):
        places.prepared(places.socket_path(tmp_path, "a"))


@given(directories=st.lists(st.text("abc/", min_size=1, max_size=300), min_size=2, max_size=2, unique=True))
def test_a_socket_path_is_short_however_long_the_directory_is(directories: list[str]) -> None:
    one, other = (places.socket_path(Path("/") / directory, "node") for directory in directories)
    assert len(str(one)) < 80
    assert (one == other) == (Path("/" + directories[0]).resolve() == Path("/" + directories[1]).resolve())


@pytest.mark.parametrize("kind", [TopologyError, FormatNameError, QuotaExceeded, UsageError])
def test_a_client_raises_what_the_node_did(kind: type[MqprotoError]) -> None:
    [answer] = FrameBuffer().feed(control.failed(7, kind("the queue is full")))
    with pytest.raises(MqprotoError, match="the queue is full") as raised:
        control.result(Operation.SEND, answer)
    assert type(raised.value) is kind


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps a limit on memory")
@pytest.mark.parametrize(
    "made",
    [
        "Send('orders', [Draft(body=bytes(4_000_000))])",
        "SendTogether([('orders', Draft(body=b'', extension=bytes(4_000_000)))])",
        "Messages(1, [bytes(4_000_000)], [1])",
    ],
)
@pytest.mark.parametrize("room_bytes", [1_000_000, 5_000_000, 6_000_000, 40_000_000])
def test_a_large_payload_is_encoded_or_there_is_no_memory_for_it_and_nobody_dies(
    made: str, room_bytes: int
) -> None:
    program = f"""
import resource
from mqproto.messages.drafts import Draft
from mqproto.simulator.node.control import Messages, Send, SendTogether, encode
value = {made}
with open("/proc/self/statm") as file:
    used_bytes = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used_bytes + {room_bytes},) * 2)
try:
    print(len(encode(value)) > 4_000_000)
except MemoryError:
    print("no memory")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("True\n" if room_bytes == 40_000_000 else "no memory\n")
