from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.figures import BenchError
from tests.bench.nats.protocol import Delivered, Incoming, answer_of, published, subscribed

SAID = (
    b'INFO {"server_id":"N","version":"2.15.1","headers":true} \r\n'
    b"+OK\r\n"
    b"MSG orders 2 $JS.ACK.destination.consumer.1.1.1.17.0 11\r\nhello\r\nNATS\r\n"
    b"PING\r\n"
    b'MSG _INBOX.sender1.0 1 29\r\n{"stream": "sender", "seq": 1}\r\n'.replace(b" 29", b" 30")
    + b"HMSG orders 2 reply 12 17\r\nNATS/1.0\r\n\r\nhello\r\n"
    b"HMSG orders 2 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    b"PONG\r\n"
)
MESSAGES = [
    Delivered(b"orders", b"$JS.ACK.destination.consumer.1.1.1.17.0", b"hello\r\nNATS"),
    Delivered(b"_INBOX.sender1.0", b"", b'{"stream": "sender", "seq": 1}'),
    Delivered(b"orders", b"reply", b"hello"),
    Delivered(b"orders", b"", b""),
]


@given(cuts=st.sets(st.integers(0, len(SAID))))
def test_messages_are_found_however_tcp_cuts_what_a_server_says(cuts: set[int]) -> None:
    incoming, ends = Incoming(), [*sorted(cuts), len(SAID)]
    found = []
    for start, end in zip([0, *ends], ends, strict=False):
        found += incoming.feed(SAID[start:end])
    assert found == MESSAGES
    assert incoming.pings == 1


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"-ERR 'Authorization Violation'\r\n", "NATS says 'Authorization Violation'"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not of its protocol"),
        (b"MSG orders 2 many\r\n", "has no size"),
        (b"MSG\r\n", "has no size"),
    ],
)
def test_what_a_server_complains_of_is_told_in_its_words(said: bytes, reason: str) -> None:
    with pytest.raises(BenchError, match=reason):
        Incoming().feed(said)


def test_a_command_has_the_size_of_its_payload() -> None:
    assert published(b"orders", b"hello") == b"PUB orders 5\r\nhello\r\n"
    assert published(b"orders", b"", b"_INBOX.a.1") == b"PUB orders _INBOX.a.1 0\r\n\r\n"
    assert subscribed(b"_INBOX.a.>", 1) == b"SUB _INBOX.a.> 1\r\n"


def test_an_answer_tells_where_a_message_stands_or_why_it_was_refused() -> None:
    answer = answer_of(b'{"stream":"sender","domain":"sender","seq":7}')
    assert (answer.seq, answer.duplicate) == (7, False)
    assert answer_of(b'{"stream":"sender","seq":7,"duplicate":true}').duplicate
    refused = b'{"error":{"code":503,"err_code":10039,"description":"JetStream not enabled"}}'
    with pytest.raises(BenchError, match="NATS refuses: JetStream not enabled"):
        answer_of(refused)
    with pytest.raises(BenchError, match="no JSON"):
        answer_of(b"+OK")
