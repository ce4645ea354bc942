from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing
from pamqp import base, commands, frame

from tests.bench.figures import BenchError
from tests.bench.rabbitmq.connection import HELLO, Connection, connected
from tests.bench.rabbitmq.protocol import Confirmed, Delivered, request
from tests.bench.rabbitmq.test_protocol import delivery

Stream = trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]


def ends() -> tuple[Connection, Stream]:
    """A connection, and the broker's end of it."""
    ours, theirs = trio.testing.memory_stream_pair()
    return Connection(ours), theirs  # type: ignore[return-value]


async def test_what_comes_before_an_answer_waits() -> None:
    connection, broker = ends()
    await broker.send_all(delivery(1, b"early") + request(commands.Basic.QosOk()) + delivery(2, b"late"))
    await connection.ask(commands.Basic.Qos(prefetch_count=5), commands.Basic.QosOk)
    _, _, asked = frame.unmarshal(bytes(await broker.receive_some()))
    assert isinstance(asked, commands.Basic.Qos)
    assert asked.prefetch_count == 5
    with trio.fail_after(5):
        assert await connection.receive() == [Delivered(1, b"early"), Delivered(2, b"late")]
        await broker.send_all(request(commands.Basic.Ack(3)))
        assert await connection.receive() == [Confirmed(3, False)]


CLOSED = commands.Channel.Close(404, "NOT_FOUND - no queue 'classic'", 50, 10)


async def test_a_broker_that_complains_is_told_in_its_words() -> None:
    connection, broker = ends()
    await broker.send_all(request(CLOSED))
    with pytest.raises(BenchError, match=r"RabbitMQ says Channel\.Close NOT_FOUND - no queue 'classic'"):
        await connection.ask(commands.Basic.Qos(), commands.Basic.QosOk)
    await broker.send_all(delivery(1, b"x") + request(commands.Basic.Nack(1)))
    with pytest.raises(BenchError, match=r"RabbitMQ says Basic\.Nack$"):
        await connection.receive()


async def test_no_answer_is_an_error(autojump_clock: trio.testing.MockClock) -> None:
    connection, _ = ends()
    with pytest.raises(BenchError, match=r"RabbitMQ has not said Basic\.QosOk within 30 s"):
        await connection.ask(commands.Basic.Qos(), commands.Basic.QosOk)


async def test_the_end_of_a_connection_is_an_error() -> None:
    connection, broker = ends()
    await broker.aclose()
    with pytest.raises(BenchError, match="ended the connection"):
        await connection.receive()


async def test_nobody_there_is_an_error(free_tcp_port: int) -> None:
    with pytest.raises(BenchError, match="no broker of RabbitMQ answers"):
        async with connected(("127.0.0.1", free_tcp_port)):
            pass


async def test_a_connection_is_opened_as_a_guest_without_heartbeats() -> None:
    said: list[base.Frame] = []

    async def broker(stream: trio.SocketStream) -> None:
        assert await stream.receive_some(len(HELLO)) == HELLO
        await stream.send_all(request(commands.Connection.Start(server_properties={}), channel=0))
        answers = {
            "Connection.StartOk": request(commands.Connection.Tune(2_047, 4_096, 60), channel=0),
            "Connection.Open": request(commands.Connection.OpenOk(), channel=0),
            "Channel.Open": request(commands.Channel.OpenOk()),
        }
        async for data in stream:
            rest = bytes(data)
            while rest:
                used, _, method = frame.unmarshal(rest)
                assert isinstance(method, base.Frame)
                said.append(method)
                rest = rest[used:]
                await stream.send_all(answers.get(method.name, b""))

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, broker, 0, host="127.0.0.1"))
        with trio.fail_after(5):
            async with connected(listener.socket.getsockname()) as connection:
                assert connection.frame_bytes == 4_096
        nursery.cancel_scope.cancel()
    start, tune, *_ = said
    assert isinstance(start, commands.Connection.StartOk)
    assert (start.mechanism, start.response) == ("PLAIN", "\0guest\0guest")
    assert isinstance(tune, commands.Connection.TuneOk)
    assert tune.heartbeat == 0
