from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console

from mqproto.base.errors import UsageError
from mqproto.bodies import REBUS, Headers, write_body, write_headers
from mqproto.simulator.command import show
from mqproto.testing.packets import nearly_valid_packets, packets
from mqproto.wire import Guid, encode_packet
from mqproto.wire.lenient import inspect_packet
from mqproto.wire.messages import user_message
from tests.examples import a_full_message


def printed(data: bytes) -> str:
    console = Console(width=400, file=io.StringIO())
    console.print(show.as_table(inspect_packet(data)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_a_body_and_an_extension_say_is_shown_below_the_fields() -> None:
    body, body_type = write_body("three \x1b pieces", "VT_BSTR")
    packet = user_message(
        source=Guid(bytes(16)), destination_manager=Guid(bytes(16)), destination=1, message_id=1, sent_time_s=1,
        body=body, body_type=body_type, extension=b'{"rbs2-msg-id": "1"}',
    )  # fmt: skip
    data = encode_packet(packet)
    content = {"kind": "VT_BSTR", "value": "three \x1b pieces"}
    headers = {"sender": "Rebus", "fields": {"rbs2-msg-id": "1"}}
    assert f"content {json.dumps(content)}" in printed(data)
    assert f"headers {json.dumps(headers)}" in printed(data)
    found = show.as_json(inspect_packet(data))
    assert (found["content"], found["headers"]) == (content, headers)


def test_a_body_that_is_encrypted_says_nothing_and_its_extension_does() -> None:
    extension = write_headers(Headers(REBUS, {"rbs2-intent": "p2p"}))
    message = a_full_message()
    assert message.security is not None
    message.properties.extension_data, message.properties.body_type = extension, 8
    message.security.body_encrypted = True
    data = encode_packet(message)
    found = show.as_json(inspect_packet(data))
    assert "content" not in found
    assert found["headers"]["fields"] == {"rbs2-intent": "p2p"}


def test_more_than_any_packet_is_refused_and_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UsageError, match="not a packet"):
        show.read_source(str(path))


@settings(max_examples=20)
@given(packet=packets())
def test_every_packet_is_shown_with_all_its_fields_in_both_forms(packet: object) -> None:
    data = encode_packet(packet)  # type: ignore[arg-type]
    inspection = inspect_packet(data)
    shown = json.loads(json.dumps(show.as_json(inspection)))
    assert shown["valid"] is True
    assert bytes.fromhex("".join(field["bytes"] for field in shown["fields"])) == data
    text = printed(data)
    assert all(field["name"] in text for field in shown["fields"])


@settings(max_examples=20)
@given(nearly_valid_packets() | st.binary(max_size=300))
def test_anything_at_all_is_shown_with_what_is_wrong(data: bytes) -> None:
    text = printed(data)
    if not inspect_packet(data).is_valid:
        assert "not valid" in text
        assert "must be" in text
        assert show.as_json(inspect_packet(data))["findings"]
