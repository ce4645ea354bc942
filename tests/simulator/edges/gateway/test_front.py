"""What requests mean and how they are answered: over real sockets, by a real node in this process."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

from mqproto.bodies import Tree, body_of_text, read_body
from mqproto.edge.exactlyonce import Attempt
from mqproto.messages.drafts import ACKNOWLEDGE_RECEIPT, REPORT_NO_ARRIVAL
from mqproto.simulator.base.http.server import Fault
from mqproto.simulator.base.log import node_log
from mqproto.simulator.client import Client, connect
from mqproto.simulator.client.envelope import Envelope, FailureNote
from mqproto.simulator.edges.gateway import names
from mqproto.simulator.edges.gateway.front import LIMIT_BYTES, ROOM_BYTES, SMALL_BYTES, faulty
from mqproto.simulator.edges.gateway.refusals import MEANINGS, Code
from mqproto.simulator.edges.history.history import open_history
from mqproto.simulator.edges.options import Retries
from mqproto.simulator.edges.trigger.breaker import Breaker
from mqproto.simulator.edges.trigger.callee import Answer, Call
from mqproto.simulator.edges.trigger.detection import Detection
from mqproto.simulator.edges.trigger.judgment import TriggerJudge, call_for
from mqproto.simulator.edges.trigger.leadership import Leadership
from mqproto.simulator.node.node import RunningNode
from mqproto.simulator.topology import Topology, load, places
from tests.simulator.gateways import bearer, gateway, written_tokens
from tests.simulator.running import Log, running

KINDS: list[tuple[str, str, Any]] = [
    ("xml", "drei Stück", "drei Stück"),
    ("xml:int", " 17 ", 17),
    ("xml:json", '{"$type": "Order", "Id": "5"}', Tree("Order", (("Id", "5"),))),
    ("VT_BSTR", "drei Stück", "drei Stück"),
    ("vt_i4", "-17", -17),
]
ORDERS, NOTES = "/queues/orders/messages", "/queues/notes/messages"


@pytest.fixture
async def node(topology: Topology, tmp_path: Path, log: Log) -> AsyncIterator[Client]:
    """Run the node with the queues that these gateways hand messages to; yield a client of the node."""
    async with (
        running(topology, "destination", tmp_path, log),
        connect(topology, "destination", tmp_path) as client,
    ):
        yield client


@pytest.fixture
async def producer(
    node: Client, topology: Topology, tmp_path: Path, log: Log
) -> AsyncIterator[httpx.AsyncClient]:
    """Run a gateway; yield a producer's client of it."""
    async with gateway(topology, tmp_path, log) as client:
        yield client


@pytest.fixture
def log() -> Log:
    return Log()


def code_of(answer: httpx.Response) -> Code:
    """Return the code of a refusal, after checking that its status and form match the code's meaning."""
    refusal = answer.json()
    code = Code(refusal["code"])
    assert refusal == {
        "type": f"urn:problem-type:mqproto:{code}",
        "title": MEANINGS[code].text,
        "status": answer.status_code,
        "detail": refusal["message"],
        "code": code,
        "message": refusal["message"],
    }
    assert refusal["message"].isprintable()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.status_code == MEANINGS[code].status
    assert ("retry-after" in answer.headers) == (MEANINGS[code].retry_after_s is not None)
    return code


# Queues


async def test_a_queue_is_known_as_soon_as_it_is_made_and_no_more_when_it_is_deleted(
    producer: httpx.AsyncClient, node: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/queues/bills/messages"
    monkeypatch.setattr(names, "FRESH_S", 0.0)
    assert code_of(await producer.post(path, content=b"1")) is Code.UNKNOWN_QUEUE
    await node.make("bills", transactional=True)
    assert (await producer.post(path, content=b"2")).status_code == 200
    [message] = await node.receive("bills")
    assert (message.body, message.transactional) == (b"2", True)
    await node.delete("bills")
    assert code_of(await producer.post(path, content=b"3")) is Code.UNKNOWN_QUEUE
    await node.make("bills")
    assert (await producer.post(path, content=b"4")).status_code == 200
    [message] = await node.receive("bills")
    assert (message.body, message.transactional) == (b"4", False)


async def test_a_queue_that_another_node_has_made_is_known_as_well(
    node: Client, topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "FRESH_S", 0.0)
    async with (
        running(topology, "sender", tmp_path),
        running(topology, "intermediate", tmp_path),
        gateway(topology, tmp_path, node="sender") as producer,
    ):
        await node.make("bills", transactional=True)
        assert (await producer.post("/queues/bills/messages", content=b"1")).status_code == 200
        assert [message.body for message in await node.receive("bills", timeout_s=60)] == [b"1"]


# Messages


async def test_body_content_type_and_label_are_carried_faithfully(
    producer: httpx.AsyncClient, node: Client, log: Log
) -> None:
    body = bytes(range(256))
    headers = {
        "Idempotency-Key": '"order-17"',
        "Content-Type": "application/x-order; v=1",
        "MQ-Label": "Gr%C3%B6%C3%9Fe",
    }
    answer = await producer.post(ORDERS, content=body, headers=headers)
    assert answer.status_code == 200
    [message] = await node.receive("orders")
    assert answer.json() == {"id": str(message.id), "duplicate": False}
    assert (message.body, message.label, message.transactional) == (body, "Größe", True)
    said = Envelope.of(message.extension)
    assert said == Envelope(
        content_type="application/x-order; v=1", producer_key="order-17", origin=said.origin
    )
    [line] = log.lines("accepted")
    assert (line["message"], line["queue"], line["key"]) == (
        str(message.id),
        r"destination\orders",
        "order-17",
    )


async def test_what_is_not_transactional_is_on_disk_too_and_has_its_properties(
    producer: httpx.AsyncClient, node: Client
) -> None:
    headers = {
        "MQ-Priority": "6",
        "MQ-Time-To-Be-Received": "3600",
        "MQ-Time-To-Reach-Queue": "60",
        "MQ-Correlation-Id": "0a" * 20,
    }
    assert (await producer.post(NOTES, content=b"", headers=headers)).status_code == 200
    [message] = await node.receive("notes")
    assert (message.body, message.extension, message.priority) == (
        b"",
        b"",
        6,
    )
    assert message.record.user.recoverable
    assert message.record.user.time_to_be_received_s == 3_600
    assert message.record.properties.correlation_id == b"\x0a" * 20


async def test_an_extension_that_says_that_a_message_failed_is_refused(producer: httpx.AsyncClient) -> None:
    """`mqproto failed retry` would send the message to the queue that the extension names, to which its sender may not
    send.
    """
    note = msgspec.json.encode(FailureNote(failure="in doubt", queue=r"destination\orders"))
    headers = {"MQ-Extension": base64.b64encode(note).decode()}
    answer = await producer.post(NOTES, content=b"", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert "MQ-Extension: a trigger alone says" in answer.json()["message"]


async def test_the_other_properties_are_carried_as_they_are(
    producer: httpx.AsyncClient, node: Client, topology: Topology
) -> None:
    headers = {
        "MQ-Application-Tag": "4000000000",
        "MQ-Extension": base64.b64encode(b"<any>\0\xff").decode(),
        "MQ-Response-Queue": "destination%5Cnotes",
        "MQ-Admin-Queue": r"DIRECT=TCP:127.0.0.9\private$\acks",
        "MQ-Acknowledge": "no-arrival, receipt",
        "MQ-Body-Type": "8",
        "Idempotency-Key": "order-17",
    }
    assert (await producer.post(ORDERS, content=b"\xff\xfe", headers=headers)).status_code == 200
    [message] = await node.receive("orders")
    assert (message.body, message.body_type, message.application_tag) == (b"\xff\xfe", 8, 4_000_000_000)
    assert message.extension == b"<any>\0\xff"
    assert message.response_queue == str(topology.resolve(r"destination\notes").format_name)
    assert message.admin_queue == r"DIRECT=TCP:127.0.0.9\PRIVATE$\acks"
    assert message.acknowledgments == ACKNOWLEDGE_RECEIPT | REPORT_NO_ARRIVAL


@pytest.mark.parametrize(("kind", "text", "value"), KINDS)
async def test_a_body_is_made_of_a_text_as_send_makes_it(
    producer: httpx.AsyncClient, node: Client, kind: str, text: str, value: Any
) -> None:
    assert (
        await producer.post(ORDERS, content=text.encode(), headers={"MQ-Body-Type": kind})
    ).status_code == 200
    [message] = await node.receive("orders")
    assert (message.body, message.body_type) == body_of_text(text.encode(), kind)
    assert read_body(message.body, message.body_type).value == value


async def test_an_id_belongs_to_a_body_of_one_type_one_tag_and_one_extension(
    producer: httpx.AsyncClient,
) -> None:
    key = {"Idempotency-Key": "1"}
    assert (await producer.post(ORDERS, content=b"17", headers=key)).status_code == 200
    for other in ({"MQ-Body-Type": "8"}, {"MQ-Application-Tag": "1"}, {"MQ-Extension": "AAAA"}):
        assert code_of(await producer.post(ORDERS, content=b"17", headers=key | other)) is Code.KEY_REUSED
    assert (await producer.post(ORDERS, content=b"17", headers=key)).json()["duplicate"] is True


@pytest.mark.parametrize("queue", ["orders", "destination%5Corders", "destination%5Cprivate%24%5Corders"])
async def test_a_queue_is_the_same_however_it_is_called(
    producer: httpx.AsyncClient, node: Client, queue: str
) -> None:
    for path, duplicate in ((ORDERS, False), (f"/queues/{queue}/messages", True)):
        answer = await producer.post(path, content=b"x", headers={"Idempotency-Key": "1"})
        assert answer.json()["duplicate"] is duplicate
    assert len(await node.receive("orders", limit=10)) == 1


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("over", [0, 1])
async def test_the_largest_body_is_taken_and_one_byte_more_is_not(
    producer: httpx.AsyncClient, node: Client, chunked: bool, over: int
) -> None:
    """A chunked body is refused as it arrives; any other body is refused because of its headers."""
    body = bytes(LIMIT_BYTES + over)

    async def in_chunks() -> AsyncIterator[bytes]:
        yield body[: len(body) // 2]
        yield body[len(body) // 2 :]

    headers = {"Content-Type": "a" * 255, "Idempotency-Key": "k" * 200, "MQ-Label": "%C3%A4" * 249}
    answer = await producer.post(NOTES, content=in_chunks() if chunked else body, headers=headers)
    if over:
        assert code_of(answer) is Code.BODY_TOO_LARGE
        assert "4,191,232" in answer.json()["message"]
    else:
        assert answer.status_code == 200
        assert [len(message.body) for message in await node.receive("notes")] == [LIMIT_BYTES]


# Refusals


@pytest.mark.parametrize(
    ("method", "path", "headers", "code"),
    [
        ("GET", ORDERS, {}, Code.METHOD_NOT_ALLOWED),
        ("POST", "/health", {}, Code.METHOD_NOT_ALLOWED),
        ("GET", "/", {}, Code.NOT_FOUND),
        ("POST", "/queues/orders", {}, Code.NOT_FOUND),
        ("POST", "/queues/orders/messages/", {}, Code.NOT_FOUND),
        ("POST", "/queues/ordres/messages", {}, Code.UNKNOWN_QUEUE),
        ("POST", "/queues//messages", {}, Code.UNKNOWN_QUEUE),
        ("POST", "/queues/%FF%00/messages", {}, Code.UNKNOWN_QUEUE),
        ("POST", "/queues/nowhere%5C%1B%5B2J%0A/messages", {}, Code.UNKNOWN_QUEUE),
        ("POST", "/queues/deadxact/messages", {}, Code.UNKNOWN_QUEUE),
        ("POST", f"/queues/{'q' * 5_000}/messages", {}, Code.UNKNOWN_QUEUE),
        ("POST", NOTES, {"MQ-Priority": "8"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Priority": "٣".encode()}, Code.BAD_HEADER),
        ("POST", ORDERS, {"MQ-Priority": "3"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Time-To-Reach-Queue": "soon"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Time-To-Be-Received": "4294967296"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Correlation-Id": "0a"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Lable": "x"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Application-Tag": "x"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Extension": "x"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Acknowledge": "arrival"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Response-Queue": "nowhere%5Cx"}, Code.INVALID),
        ("POST", NOTES, {"MQ-Admin-Queue": "%1B%5B2J"}, Code.INVALID),
        ("POST", NOTES, {"MQ-Body-Type": "VT_I4"}, Code.INVALID),
        ("POST", NOTES, {"MQ-Body-Type": "VT_NONE"}, Code.INVALID),
        ("POST", NOTES, {"MQ-Body-Type": "4294967296"}, Code.INVALID),
        ("POST", NOTES, {"MQ-Label": "%FF"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Label": b"\xe4"}, Code.BAD_HEADER),
        ("POST", NOTES, {"MQ-Label": "a%00b"}, Code.INVALID),
        ("POST", NOTES, {"MQ-Label": "x" * 250}, Code.INVALID),
        ("POST", NOTES, {"Content-Type": "a" * 256}, Code.BAD_HEADER),
        ("POST", NOTES, {"Idempotency-Key": "k" * 201}, Code.BAD_HEADER),
        ("POST", NOTES, {"Idempotency-Key": b"\xe4"}, Code.BAD_HEADER),
        ("POST", NOTES, [("Idempotency-Key", "1"), ("Idempotency-Key", "2")], Code.BAD_HEADER),
        ("POST", NOTES, {"X": "y" * 20_000}, Code.HEAD_TOO_LARGE),
        ("POST", NOTES, {"Origin": "http://a.page.somewhere"}, Code.FORBIDDEN),
    ],
)
async def test_a_business_error_is_said_in_a_word_and_a_line(
    producer: httpx.AsyncClient, node: Client, method: str, path: str, headers: Any, code: Code
) -> None:
    """From "Message Producer Rules": "A business error (a service-specific error code)"; nothing is accepted."""
    assert code_of(await producer.request(method, path, headers=headers)) is code
    status = await node.queues()
    assert not any(queue.waiting for queue in status.local)


def test_each_fault_of_the_server_is_said_in_the_same_form() -> None:
    for fault in Fault:
        status, headers, body = faulty(fault)
        assert code_of(httpx.Response(status, headers=list(headers), content=body))


async def test_another_message_with_the_same_id_is_refused(producer: httpx.AsyncClient, log: Log) -> None:
    key = {"Idempotency-Key": "1"}
    assert (await producer.post(ORDERS, content=b"one", headers=key)).status_code == 200
    assert code_of(await producer.post(ORDERS, content=b"two", headers=key)) is Code.KEY_REUSED
    [line] = log.lines("refused")
    assert (line["reason"], line["queue"], line["key"]) == ("key-reused", r"destination\orders", "1")


async def test_a_full_queue_is_no_business_error(tmp_path: Path) -> None:
    """From "Message Producer Rules": "Any system error": after a consumer has received a message, the one that was
    refused is accepted.
    """
    small = tmp_path / "small.toml"
    small.write_text(
        '[node.destination]\naddress = "127.0.0.1:1"\n[node.destination.queue.orders]\nquota_kb = 8\n'
    )
    topology = load(str(small)).with_free_ports()
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path) as client,
        gateway(topology, tmp_path) as producer,
    ):
        key = {"Idempotency-Key": "2"}
        assert (await producer.post(ORDERS, content=bytes(5_000))).status_code == 200
        assert code_of(await producer.post(ORDERS, content=bytes(5_000), headers=key)) is Code.QUEUE_FULL
        await client.receive("orders")
        answer = await producer.post(ORDERS, content=bytes(5_000), headers=key)
        assert (answer.status_code, answer.json()["duplicate"]) == (200, False)


# Where the id is


async def test_the_id_may_be_in_another_header(node: Client, topology: Topology, tmp_path: Path) -> None:
    async with gateway(topology, tmp_path, key_header="X-Request-Id", require_key=True) as producer:
        for duplicate in (False, True):
            answer = await producer.post(ORDERS, content=b"x", headers={"X-Request-Id": "1"})
            assert answer.json()["duplicate"] is duplicate
        assert code_of(await producer.post(ORDERS, headers={"Idempotency-Key": "1"})) is Code.KEY_MISSING


async def test_the_id_may_be_in_the_body(node: Client, topology: Topology, tmp_path: Path) -> None:
    async with gateway(topology, tmp_path, key_fields=("id",)) as producer:
        for content in (b'{"id": 17, "pieces": 3}', b'{"id": "17", "pieces": 3}'):
            answer = await producer.post(ORDERS, content=content, headers={"MQ-Label": "x"})
            assert answer.status_code == (422 if b'"17"' in content else 200)  # The same id in another body.
        assert (await producer.post(ORDERS, content=content.replace(b'"17"', b"18"))).status_code == 200
        answer = await producer.post(ORDERS, content=b'{"id": "' + b"k" * 201 + b'"}')
        assert code_of(answer) is Code.INVALID
    assert [Envelope.of(each.extension).producer_key for each in await node.receive("orders", 10)] == [
        "17",
        "18",
    ]


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[1]", b"{}", b'{"id": null}', b'{"id": [1]}', b'{"id": 1.5}', b"[" * 100_000]
)
async def test_a_body_without_the_id_is_just_sent_unless_an_id_is_asked_for(
    node: Client, topology: Topology, tmp_path: Path, content: bytes
) -> None:
    async with gateway(topology, tmp_path, key_fields=("id",)) as producer:
        assert (await producer.post(ORDERS, content=content)).json()["duplicate"] is False
    async with gateway(topology, tmp_path, key_fields=("id",), require_key=True) as producer:
        assert code_of(await producer.post(ORDERS, content=content)) is Code.KEY_MISSING


async def test_an_id_may_be_made_of_several_fields(node: Client, topology: Topology, tmp_path: Path) -> None:
    """No two messages have the same id, and a producer that gives only part of an id is told so."""
    told: list[bool] = []
    pairs = [("a", "b"), ("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("ä", 1), ("a", "b")]
    async with gateway(topology, tmp_path, key_fields=("shop", "number")) as producer:
        for shop, number in pairs:
            answer = await producer.post(ORDERS, json={"shop": shop, "number": number})
            told.append(answer.json()["duplicate"])
        assert told == [False] * 5 + [True]
        for lacking in ({"shop": "a"}, {"shop": "a", "number": ""}, {"shop": "a", "number": [1]}):
            refused = await producer.post(ORDERS, json=lacking)
            assert code_of(refused) is Code.INVALID
            assert "made of the fields shop and number: give it number" in refused.json()["detail"]
        assert (await producer.post(ORDERS, json={"other": 1})).json()["duplicate"] is False
        assert (await producer.get(f"{ORDERS}/a%253Ab:c")).json()["state"] == "accepted"
        document = (await producer.get("/openapi.json")).json()
    post = document["paths"]["/queues/{NAME}/messages"]["post"]
    assert "in the fields shop and number" in post["description"]
    assert not post["responses"]["200"]["links"]
    keys = [Envelope.of(each.extension).producer_key for each in await node.receive("orders", 10)]
    assert keys == ["a:b", "a%3Ab:c", "a:b%3Ac", "a%253Ab:c", "%C3%A4:1", ""]


async def test_senders_of_events_are_told_whether_they_may(
    node: Client, topology: Topology, tmp_path: Path
) -> None:
    """CloudEvents, HTTP 1.1 Web Hooks, 4: they are told before anything is sent, and without a token.

    Senders that are not named may not send.
    """
    asked = {"WebHook-Request-Origin": "Events.example", "WebHook-Request-Rate": "120"}
    async with gateway(topology, tmp_path) as producer:
        answer = await producer.options(ORDERS, headers=asked)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
        assert "WebHook-Allowed-Origin" not in answer.headers
    tokens = written_tokens(tmp_path, s='queues = ["orders"]')
    for rate, allowed in ((0.0, "*"), (2.5, "150")):
        async with gateway(
            topology, tmp_path, tokens=tokens, rate=rate, webhook_origins=("events.Example",)
        ) as producer:
            for path in (ORDERS, "/queues/nobody-knows/messages"):
                answer = await producer.options(path, headers=asked)
                assert answer.status_code == 200
                assert answer.headers["WebHook-Allowed-Origin"] == "events.example"
                assert answer.headers["WebHook-Allowed-Rate"] == allowed
            for origin in ("other.example", "events.example.other", "*", ""):
                answer = await producer.options(ORDERS, headers={"WebHook-Request-Origin": origin})
                assert code_of(answer) is Code.FORBIDDEN
                assert "WebHook-Allowed-Origin" not in answer.headers
            assert (await producer.options(ORDERS)).status_code == 405


async def test_of_a_chunk_that_is_too_large_nothing_is_read(
    node: Client, topology: Topology, tmp_path: Path
) -> None:
    async with gateway(topology, tmp_path) as producer:
        url = producer.base_url
        async with await trio.open_tcp_stream(url.host, url.port or 0) as stream:
            await stream.send_all(
                f"POST {ORDERS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n".encode()
                + b"FFFFFFFF\r\n"
            )
            assert (await stream.receive_some(65_536)).startswith(b"HTTP/1.1 413 ")


async def test_its_own_administration_queue_is_not_given_to_the_consumer(
    node: Client, topology: Topology, tmp_path: Path
) -> None:
    """A consumer with access to this queue could report how other messages ended. A queue that a producer names is
    passed on.
    """
    async with gateway(topology, tmp_path) as producer:
        await producer.post(ORDERS, content=b"ours")
        await producer.post(ORDERS, content=b"theirs", headers={"MQ-Admin-Queue": "destination%5Cnotes"})
    ours, theirs = await node.receive("orders", 2)
    for message, is_given in ((ours, False), (theirs, True)):
        assert message.admin_queue
        call = call_for(message)
        assert ("MQ-Admin-Queue" in call.headers()) is ("MQ-Acknowledge" in call.headers()) is is_given
        said = json.loads(call.as_json())
        assert ("admin_queue" in said) is ("acknowledgments" in said) is is_given


@pytest.mark.parametrize("is_shared", [True, False])
async def test_nor_beside_an_extension_of_the_producers_if_gateway_and_trigger_have_one_history(
    node: Client, topology: Topology, tmp_path: Path, is_shared: bool
) -> None:
    """Nothing in the message says whether its extension is the gateway's or the producer's."""
    calls = []

    class Consumer:
        async def call(self, call: Call) -> Answer:
            calls.append(call)
            return Answer(Attempt.SUCCEEDED)

    extension = {"MQ-Extension": base64.b64encode(b"theirs").decode()}
    async with gateway(topology, tmp_path) as producer:
        await producer.post(ORDERS, content=b"ours", headers=extension)
        await producer.post(
            ORDERS, content=b"", headers=extension | {"MQ-Admin-Queue": "destination%5Cnotes"}
        )
    url = places.history_url(tmp_path) if is_shared else f"sqlite:///{tmp_path}/another.sqlite"
    async with open_history(url) as history:
        detection = Detection(r"destination\orders", "trigger", history)
        breaker = Breaker(0, Retries(), 1)
        judge = TriggerJudge(
            Consumer(), detection, breaker, Leadership().confirm, 9, 30, node_log(Log(), "trigger")
        )
        for message in await node.receive("orders", 2):
            await judge.decide(message)
    assert ["MQ-Admin-Queue" in call.headers() for call in calls] == [False, True]
    assert ["MQ-Acknowledge" in call.headers() for call in calls] == [False, True]


# Who may, and how much


async def test_a_token_opens_its_queues_and_no_others(
    node: Client, topology: Topology, tmp_path: Path
) -> None:
    tokens = written_tokens(tmp_path, s='queues = ["orders"]')
    async with gateway(topology, tmp_path, tokens=tokens) as producer:
        assert (await producer.post(ORDERS, headers=bearer("s" * 32))).status_code == 200
        assert (
            await producer.post(r"/queues/destination%5Corders/messages", headers=bearer("s" * 32))
        ).is_success
        assert code_of(await producer.post(NOTES, headers=bearer("s" * 32))) is Code.FORBIDDEN
        for header in ("MQ-Response-Queue", "MQ-Admin-Queue"):
            # Whoever has a token has others write to the queues that it opens, and to no others.
            for queue, code in (
                ("destination%5Corders", 200 if header == "MQ-Response-Queue" else 400),  # By the node.
                ("notes", 403),
                (r"DIRECT=TCP:192.0.2.1%5Cprivate$%5Cq", 404),
            ):
                answer = await producer.post(ORDERS, headers=bearer("s" * 32) | {header: queue})
                assert answer.status_code == code, answer.text
        assert code_of(await producer.post(ORDERS, headers=bearer("t" * 32))) is Code.UNAUTHORISED
        answer = await producer.post("/queues/ordres/messages")
        assert (
            code_of(answer) is Code.UNAUTHORISED
        )  # A client without a token does not learn which queues there are.
        assert answer.headers["www-authenticate"] == "Bearer"


# Whose the id is


def tokens_of(folder: Path, **producers: str | None) -> Path:
    """Write a file of tokens for `orders`; None gives a token the producer that has the token's own name."""
    named = {
        name: "" if producer is None else f'producer = "{producer}"' for name, producer in producers.items()
    }
    return written_tokens(folder, **{name: f'queues = ["orders"]\n{line}\n' for name, line in named.items()})


def of(name: str, key: str = "") -> dict[str, str]:
    return {**bearer(name * 32), **({"Idempotency-Key": key} if key else {})}


async def test_each_producer_has_ids_of_his_own_as_far_as_the_consumer(
    node: Client, topology: Topology, tmp_path: Path, log: Log
) -> None:
    """Seed 2: every message entering the system must have a unique id. Two producers may choose the same id."""
    tokens = tokens_of(tmp_path, s=None, b=None, n="s", o="")
    told: dict[str, str] = {}
    async with gateway(topology, tmp_path, log, tokens=tokens) as producer:
        for name, duplicate in (("s", False), ("b", False), ("o", False), ("n", True), ("b", True)):
            body = b"s" if name == "n" else name.encode()
            answer = await producer.post(ORDERS, content=body, headers=of(name, "17"))
            assert answer.json()["duplicate"] is duplicate, name
            told[name] = answer.json()["id"]
        assert told["n"] == told["s"]  # Another token of the same producer.
        for name in told:
            trail = (await producer.get(f"{ORDERS}/17", headers=of(name))).json()
            assert (trail["id"], trail["message"]) == ("17", told[name])
        await producer.post(ORDERS, content=b"b", headers=of("b", "18"))
        assert code_of(await producer.get(f"{ORDERS}/18", headers=of("s"))) is Code.UNKNOWN_MESSAGE
        # Nobody reaches another's by its whole name.
        assert code_of(await producer.get(f"{ORDERS}/b%2F18", headers=of("s"))) is Code.UNKNOWN_MESSAGE
        assert (await producer.post(ORDERS, content=b"b", headers=of("s", "b/18"))).json()[
            "duplicate"
        ] is False
    async with gateway(topology, tmp_path) as producer:  # Without tokens all are seen, by their whole names.
        assert (await producer.get(f"{ORDERS}/b%2F17")).json()["message"] == told["b"]
        assert (await producer.get(f"{ORDERS}/17")).json()["message"] == told["o"]
    consumers = [call_for(message).key for message in await node.receive("orders", 10)]
    assert consumers == ["s/17", "b/17", "17", "b/18", "s/b/18"]
    assert {line["key"] for line in log.lines("accepted")} == set(consumers)


@pytest.mark.parametrize("length", [1, 200, 255])
async def test_an_id_may_be_as_long_as_the_gateway_says(
    node: Client, topology: Topology, tmp_path: Path, length: int
) -> None:
    tokens = tokens_of(tmp_path, s="p" * 64)
    async with gateway(topology, tmp_path, tokens=tokens, key_length=length) as producer:
        for duplicate in (False, True):
            answer = await producer.post(ORDERS, content=b"x", headers=of("s", "k" * length))
            assert answer.json()["duplicate"] is duplicate
        refused = await producer.post(ORDERS, headers=of("s", "k" * (length + 1)))
        assert code_of(refused) is Code.BAD_HEADER
        assert f"at most {length} can be" in refused.json()["detail"]
        assert code_of(await producer.get(f"{ORDERS}/{'k' * (length + 1)}", headers=of("s"))) is Code.INVALID
        assert (await producer.get(f"{ORDERS}/{'k' * length}", headers=of("s"))).json()["id"] == "k" * length


async def test_a_queue_takes_no_more_than_its_rate(node: Client, topology: Topology, tmp_path: Path) -> None:
    async with gateway(topology, tmp_path, rate=0.01) as producer:
        assert (await producer.post(ORDERS)).status_code == 200
        answer = await producer.post(ORDERS)
        assert code_of(answer) is Code.TOO_MANY
        assert 90 <= int(answer.headers["retry-after"]) <= 100
        assert (await producer.post(NOTES)).status_code == 200


async def test_large_bodies_that_come_slowly_take_the_room_of_large_ones_alone(
    topology: Topology, tmp_path: Path, idle_clock: MockClock
) -> None:
    async with (
        running(topology, "destination", tmp_path),
        gateway(topology, tmp_path) as producer,
        trio.open_nursery() as nursery,
    ):
        large = bytes(LIMIT_BYTES)

        async def slow() -> None:
            async def body() -> AsyncIterator[bytes]:
                yield large[:1_000]
                await trio.sleep_forever()

            await producer.post(NOTES, content=body(), headers={"Content-Length": str(len(large))})

        for _ in range(ROOM_BYTES // LIMIT_BYTES):
            nursery.start_soon(slow)
        await trio.sleep(1)
        assert code_of(await producer.post(NOTES, content=large)) is Code.OVERLOADED
        assert (await producer.post(NOTES, content=large[:SMALL_BYTES])).status_code == 200
        nursery.cancel_scope.cancel()


# The rest


async def test_health_is_that_of_the_node(
    producer: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await producer.get("/health")).json() == {"status": "ok"}
    monkeypatch.setattr(RunningNode, "trouble", "its disk is full")
    assert code_of(await producer.get("/health")) is Code.NODE_UNAVAILABLE


async def test_the_document_that_is_served_is_openapi(producer: httpx.AsyncClient) -> None:
    document = json.loads((await producer.get("/openapi.json?x")).content)
    assert document["openapi"] == "3.1.0"
    assert (await producer.head("/openapi.json")).content == b""
