"""The consumer of a validation follows its cues, and counts what it processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import trio

from mqproto.simulator.rig.load.validator import BODY_LIMIT_BYTES, QUESTIONS, Cue, Validator, scripted
from mqproto.simulator.topology.ports import reserved_address


@asynccontextmanager
async def serving(validator: Validator) -> AsyncIterator[str]:
    """Run the consumer; yield its URL."""
    _, port = reserved_address()
    async with trio.open_nursery() as nursery:
        await nursery.start(validator.serve, port)
        yield f"http://127.0.0.1:{port}/"
        nursery.cancel_scope.cancel()


async def bring(client: httpx.AsyncClient, url: str, number: int = 0, timeout_s: float = 5.0) -> int | str:
    """Deliver a message to the consumer; return the status, or the name of the error."""
    try:
        answer = await client.post(
            url,
            content=f"message-{number}",
            headers={"Idempotency-Key": f"key-{number}"},
            timeout=timeout_s,
        )
    except httpx.TransportError as error:
        return type(error).__name__
    return answer.status_code


@pytest.mark.parametrize(
    ("cue", "answer", "processed"),
    [
        (Cue.ACCEPT, 200, True),
        (Cue.FAIL, 500, False),
        (Cue.BUSINESS_ERROR, 422, False),
        (Cue.FAIL_LATE, 500, True),
        (Cue.REFUSE, "RemoteProtocolError", False),
        (Cue.DIE, "RemoteProtocolError", True),
        (Cue.TIME_OUT, "ReadTimeout", False),
        (Cue.LATE, "ReadTimeout", True),
    ],
)
async def test_each_cue_is_obeyed_and_what_was_processed_is_dropped_when_it_comes_again(
    cue: Cue, answer: int | str, processed: bool
) -> None:
    """From "Eliminating Duplicates on the Consumer": "If it was, the duplicate message is just dropped"."""
    validator = Validator(scripted([cue]))
    async with serving(validator) as url, httpx.AsyncClient() as client:
        assert await bring(client, url, timeout_s=0.2 if answer == "ReadTimeout" else 5) == answer
        assert list(validator.reached) == ["key-0"] * processed
        assert await bring(client, url) == 200
    assert list(validator.reached) == ["key-0"]
    assert validator.duplicates == processed
    assert validator.calls == {"key-0": 2}


async def test_cues_are_for_each_message_or_for_one() -> None:
    async with httpx.AsyncClient() as client:
        async with serving(Validator(scripted([Cue.FAIL]))) as url:
            assert [await bring(client, url, number) for number in (0, 1, 0, 1)] == [500, 500, 200, 200]
        async with serving(Validator(scripted([Cue.FAIL], only=1))) as url:
            assert [await bring(client, url, number) for number in (0, 1, 0, 1)] == [200, 500, 200, 200]


async def test_a_stranger_with_another_body_is_a_caller_like_any_other_unless_it_is_too_long() -> None:
    async with serving(Validator(scripted([Cue.FAIL], only=0))) as url, httpx.AsyncClient() as client:
        assert (await client.post(url, content=b"hello")).status_code == 200
        with pytest.raises(httpx.TransportError):
            await client.post(url, content=bytes(BODY_LIMIT_BYTES + 1))


async def test_it_knows_whether_it_has_processed_a_message() -> None:
    """Execute Document Resolver Service: NEW, DUPLICATE."""
    validator = Validator(scripted([Cue.LATE]))
    async with serving(validator) as url, httpx.AsyncClient() as client:

        async def asked() -> str:
            answer = await client.post(url[:-1] + QUESTIONS, headers={"Idempotency-Key": "key-0"})
            status: str = answer.json()["status"]
            return status

        assert await asked() == "NEW"
        await bring(client, url, timeout_s=0.2)
        assert await asked() == "DUPLICATE"
    assert validator.questions == 2


async def test_what_is_no_http_is_told_so() -> None:
    async with serving(Validator(scripted([]))) as url:
        stream = await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0)
        async with stream:
            await stream.send_all(b"hello\r\n\r\n")
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 400 ")
