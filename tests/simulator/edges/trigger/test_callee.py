"""The meaning of a consumer's answer: the table of callee.py, row by row, and calls over real sockets.

"Reliable messaging" means the document "Transactions in OSB. Reliable Messaging".
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import pytest
import trio
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.edges.httpclient import ANSWER_LIMIT_BYTES, Response
from mqproto.simulator.edges.trigger.callee import (
    REASON_LIMIT,
    RETRY_AFTER_LIMIT_S,
    SPARE_THREADS,
    BusinessError,
    Call,
    HttpCallee,
    PythonCallee,
    endpoint,
    meaning,
    one_line,
    retry_after_s,
)
from tests.simulator.consumers import DROP, OK, HttpConsumer, Reply, Seen, listening

SUCCEEDED, FOR_NOW, FOR_GOOD = Attempt.SUCCEEDED, Attempt.FAILED_FOR_NOW, Attempt.FAILED_FOR_GOOD
CALL = Call(message="GUID\\1", key="order-17", delivery_count=1, body=b"one")


NO_FAULT = (b"", b'{"fault": null}', b'{"fault": 0}', b'{"fault": ""}', b'{"fault": false}')
NO_CODE = (b"", None, b'{"code": true}', b'["code"]', b"[" * 60_000, b'{"code": "\xff"}')


@pytest.mark.parametrize(
    ("status", "body", "error_field", "attempt"),
    [
        (200, b"", "", SUCCEEDED),
        (299, b'{"code": "looks like one"}', "", SUCCEEDED),
        (200, None, "", SUCCEEDED),
        *((200, body, "fault", SUCCEEDED) for body in NO_FAULT),
        (200, b'{"fault": "E1"}', "fault", FOR_GOOD),
        (200, b'{"fault": 1}', "fault", FOR_GOOD),
        (200, None, "fault", FOR_NOW),
        (400, b'{"code": "E1"}', "", FOR_GOOD),
        (404, b'{"code": 17, "message": "none"}', "", FOR_GOOD),
        (499, b'{"fault": "E1"}', "fault", FOR_GOOD),
        (422, b'{"code": "E1"}', "fault", FOR_GOOD),
        (404, b"<html>not found</html>", "", FOR_NOW),
        *((400, body, "", FOR_NOW) for body in NO_CODE),
        *((status, b'{"code": "E1"}', "", FOR_NOW) for status in (408, 425, 429, 301, 500)),
        (503, b'{"fault": "E1"}', "fault", FOR_NOW),
        (599, b"", "", FOR_NOW),
    ],
)
def test_what_an_answer_means(status: int, body: bytes | None, error_field: str, attempt: Attempt) -> None:
    """Reliable messaging, Message Consumer Rules."""
    assert meaning(Response(status, {}, body), error_field).attempt is attempt


PROBLEMS = st.dictionaries(st.sampled_from(["type", "title", "detail"]), st.text() | st.integers())
PROBLEM = {"Content-Type": "application/problem+json"}
SECTION = b'{"type": "https://tools.ietf.org/html/rfc9110#section-15.5.%s", "title": "x"}'


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (
            422,
            b'{"type": "https://x/poor", "title": "No money.", "detail": "30"}',
            "https://x/poor: No money: 30",
        ),
        (400, b'{"type": "/poor", "status": 503}', "/poor"),
        (409, b'{"title": "Conflict"}', "HTTP 409: Conflict"),
        (422, b"{}", "HTTP 422"),
        # A member of the wrong type is as if it were not there.  [RFC 9457] 3.1
        (422, b'{"type": 17, "title": ["x"], "detail": "30"}', "HTTP 422: 30"),
        (422, b'{"type": "a\\u001bb\\n", "detail": "30"}', "a b: 30"),
        (422, b'{"type": "https://x/poor", "code": "E1", "message": "none"}', "E1: none"),
        (404, b'{"type": "https://x/no-such-customer"}', "https://x/no-such-customer"),
        (404, b'{"title": "Not Found", "code": "E1"}', "E1"),
        (404, b'{"title": "Not Found"}', None),
        (401, b'{"type": "about:blank", "title": "Unauthorized"}', None),
        (403, SECTION % b"4", None),
        (405, SECTION % b"6", None),
        (422, SECTION % b"21", "HTTP 422: x"),
        (429, b'{"type": "https://x/poor"}', None),
        (500, b'{"type": "https://x/poor"}', None),
        (422, b'["type"]', None),
        (422, b"", None),
        (422, None, None),
    ],
)
@pytest.mark.parametrize("kind", ["application/problem+json", "Application/Problem+JSON; charset=utf-8"])
def test_a_problem_is_a_business_error(
    status: int, body: bytes | None, reason: str | None, kind: str
) -> None:
    """[RFC 9457] 3.1; a framework's answer to a wrong address does not come from the consumer."""
    answer = meaning(Response(status, {"Content-Type": kind}, body))
    assert answer.attempt is (FOR_NOW if reason is None else FOR_GOOD)
    assert reason in (None, answer.reason)


def test_what_is_not_said_to_be_a_problem_is_none() -> None:
    answer = Response(422, {"Content-Type": "application/json"}, b'{"type": "https://x/poor"}')
    assert meaning(answer).attempt is FOR_NOW


@given(
    status=st.integers(100, 599),
    headers=st.sampled_from([{}, PROBLEM]),
    body=st.none() | st.binary() | PROBLEMS.map(lambda each: json.dumps(each).encode()),
    error_field=st.sampled_from(["", "code"]),
)
def test_any_answer_means_something_in_one_line(
    status: int, headers: dict[str, str], body: bytes | None, error_field: str
) -> None:
    answer = meaning(Response(status, headers, body), error_field)
    assert answer.reason.isprintable()
    assert (answer.reason == "") == (answer.attempt is SUCCEEDED)


def test_the_reason_of_a_business_error_begins_with_the_service_code() -> None:
    body = b'{"code": "unknown-account", "message": "there is\\nno 17"}'
    assert meaning(Response(422, {}, body)).reason == "unknown-account: there is no 17"


def test_of_an_answer_that_is_not_read_it_is_not_said_that_it_has_no_service_code() -> None:
    for status, error_field in ((400, ""), (400, "error"), (200, "error")):
        answer = meaning(Response(status, {}, None), error_field)
        assert answer.attempt is FOR_NOW
        assert answer.reason == f"HTTP {status} with an answer of more than 65,536 bytes, which is not read"


@given(st.text())
def test_a_reason_is_one_line_of_bounded_length(text: str) -> None:
    line = one_line(text)
    assert len(line) <= REASON_LIMIT
    assert line.isprintable()


@pytest.mark.parametrize(
    ("status", "in_doubt"), [(500, False), (502, True), (503, False), (504, True), (404, False)]
)
def test_an_answer_says_that_it_was_not_taken_unless_it_is_a_proxys_that_had_none(
    status: int, in_doubt: bool
) -> None:
    """[RFC 9110] 15.6.3, 15.6.5"""
    assert meaning(Response(status, {}, b"")).is_in_doubt is in_doubt


@pytest.mark.parametrize("cue", [DROP, Reply(200, b"body", cut=3)])
async def test_without_an_answer_that_can_be_read_it_is_in_doubt(cue: Reply | None) -> None:
    consumer = HttpConsumer(cue)
    async with listening(consumer), endpoint(consumer.url) as found:
        assert (await HttpCallee(found).call(CALL)).is_in_doubt
    async with endpoint(consumer.url) as gone:
        assert not (await HttpCallee(gone).call(CALL)).is_in_doubt, "nobody has seen it"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("", 0),
        ("0", 0),
        ("120", 120),
        ("-1", 0),
        ("soon", 0),
        ("²", 0),
        ("9" * 5_000, RETRY_AFTER_LIMIT_S),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", RETRY_AFTER_LIMIT_S),
        ("Fri, 99 Dec 9999 23:59:59 GMT", 0),
    ],
)
def test_retry_after_is_read_and_bounded(value: str, seconds: float) -> None:
    assert retry_after_s(value) == seconds


def test_retry_after_may_be_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=1_000), usegmt=True)
    assert 900 < retry_after_s(date) <= 1_000


def test_retry_after_comes_with_the_answer() -> None:
    assert meaning(Response(503, {"Retry-After": "7"}, b"")).retry_after_s == 7


async def post(*cues: Reply | None, error_field: str = "") -> tuple[HttpConsumer, list[Attempt]]:
    consumer = HttpConsumer(*cues)
    async with listening(consumer), endpoint(consumer.url) as found:
        callee = HttpCallee(found, error_field)
        return consumer, [(await callee.call(CALL)).attempt for _ in cues]


@pytest.mark.parametrize(
    ("cue", "attempt"),
    [
        (DROP, FOR_NOW),
        (Reply(200, b"body", cut=3), FOR_NOW),
        (Reply(302, headers={"Location": "/elsewhere"}), FOR_NOW),
        (Reply(200, bytes(ANSWER_LIMIT_BYTES + 1)), SUCCEEDED),
        (Reply(400, b'{"code": "E1"}' + b" " * ANSWER_LIMIT_BYTES), FOR_NOW),
        (Reply(400, b'{"code": "E1"}', headers={"Content-Encoding": "gzip"}), FOR_GOOD),
    ],
)
async def test_each_call_is_one_request_whatever_is_answered(cue: Reply | None, attempt: Attempt) -> None:
    """Reliable messaging, Do NOT Use Biz Service Retries. Redirections are not followed, and nothing is unpacked."""
    consumer, attempts = await post(cue, OK)
    assert attempts == [attempt, SUCCEEDED]
    assert consumer.bodies == [b"one", b"one"]


async def test_a_user_in_the_url_is_named_to_the_consumer() -> None:
    consumer = HttpConsumer()
    async with listening(consumer), endpoint(consumer.url.replace("//", "//ann:b%40d@")) as place:
        await HttpCallee(place).call(CALL)
    [seen] = consumer.seen
    assert seen.headers["authorization"] == "Basic YW5uOmJAZA=="


async def test_an_answer_that_never_ends_is_not_read_to_its_end() -> None:
    async def endless(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(65_536)
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
            with suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(bytes(65_536))

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, endless, 0, host="127.0.0.1"))
        async with endpoint(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/") as found:
            assert (await HttpCallee(found).call(CALL)).attempt is SUCCEEDED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + bytes([0x61]) * 10**6, b""]
)
async def test_bytes_that_are_no_http_are_a_system_error(said: bytes) -> None:
    async def chatter(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some(65_536)
            with suppress(trio.BrokenResourceError):
                await stream.send_all(said)

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, chatter, 0, host="127.0.0.1"))
        async with endpoint(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/") as found:
            answer = await HttpCallee(found).call(CALL)
        nursery.cancel_scope.cancel()
    assert answer.attempt is FOR_NOW
    assert answer.reason.startswith("the connection broke")


async def test_a_call_that_is_given_up_leaves_nothing_behind() -> None:
    consumer = HttpConsumer()

    async def never(seen: Seen) -> Reply:
        await trio.sleep_forever()
        raise AssertionError

    consumer.answering = never
    async with listening(consumer), endpoint(consumer.url) as found:
        callee = HttpCallee(found)
        with trio.move_on_after(0.05) as scope:
            await callee.call(CALL)
        assert scope.cancelled_caught


@pytest.mark.parametrize("url", ["orders", "ftp://127.0.0.1/", "http://", "http://[::1", "http://host:port/"])
async def test_what_is_no_url_of_http_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is not a URL"):
        async with endpoint(url):
            pass


# Functions


async def test_a_function_of_either_kind_succeeds_by_returning() -> None:
    async def later(call: Call) -> str:
        await trio.lowlevel.checkpoint()
        return "whatever"

    for function in (later, lambda call: call.body):
        assert (await PythonCallee(function).call(CALL)).attempt is SUCCEEDED


@pytest.mark.parametrize(
    ("error", "attempt", "reason"),
    [
        (BusinessError("E1", "no such account"), FOR_GOOD, "E1: no such account"),
        (BusinessError("E1"), FOR_GOOD, "E1"),
        (ValueError("what\nis this"), FOR_NOW, "ValueError: what is this"),
        (ExceptionGroup("two", [OSError(), OSError()]), FOR_NOW, "ExceptionGroup: two (2 sub-exceptions)"),
    ],
)
async def test_what_a_function_raises_is_a_business_error_or_a_system_error(
    error: Exception, attempt: Attempt, reason: str
) -> None:
    def fails(call: Call) -> None:
        raise error

    async def fails_later(call: Call) -> None:
        raise error

    for function in (fails, fails_later):
        answer = await PythonCallee(function).call(CALL)
        assert (answer.attempt, answer.reason) == (attempt, reason)


async def test_functions_that_take_too_long_are_left_behind_and_are_bounded() -> None:
    may_end = threading.Event()
    running = threading.Semaphore(0)

    def slow(call: Call) -> None:
        running.release()
        may_end.wait()

    callee = PythonCallee(slow)
    try:
        for _ in range(SPARE_THREADS + 3):
            with trio.move_on_after(0.02) as scope:
                await callee.call(CALL)
            assert scope.cancelled_caught
        begun = 0
        while running.acquire(blocking=False):
            begun += 1
        assert 1 <= begun <= 1 + SPARE_THREADS
    finally:
        may_end.set()
