"""Pasted packets: each is shown with its offset, and other bytes with the reason why they are not a packet."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE
from mqproto.wire import encode_packet, ping_packet
from tests.captures.files.test_pasted import hexdump_c, xxd
from tests.captures.test_payload import in_tcp
from tests.conformance import ROOT
from tests.examples import a_ping, a_user_message, an_establish_connection
from tests.simulator.typed import Done, in_process
from tests.wire.layouts.test_srmp import headers, over_http

HELLO = encode_packet(an_establish_connection())
MESSAGE = encode_packet(a_user_message(body=b"three pieces"))
PING = ping_packet.encode(a_ping())
STREAM = HELLO + PING + MESSAGE


def headlines(done: Done) -> list[str]:
    return [
        line.rstrip()
        for line in done.out.splitlines()
        if " bytes" in line and not line.startswith("byte  size")
    ]


def test_packets_behind_one_another_are_shown_each_with_its_offset() -> None:
    for stdin in (STREAM, xxd(STREAM).encode(), hexdump_c(STREAM).encode(), base64.encodebytes(STREAM)):
        done = in_process("decode", "-", stdin=stdin)
        assert (done.status, done.err) == (DONE, "")
        assert headlines(done) == [
            "EstablishConnection, 572 bytes",
            "byte 572: Ping, 24 bytes",
            f"byte 596: express UserMessage, {len(MESSAGE)} bytes",
        ]


def test_a_ping_alone_has_its_fields() -> None:
    done = in_process("decode", PING.hex(" "))
    assert done.status == DONE
    for name in ("flags", "signature", "cookie", "qm_guid"):
        assert f"  {name} " in done.out


def test_a_rest_that_is_no_packet_is_said_with_its_offset_and_reason() -> None:
    done = in_process("decode", "-", stdin=STREAM + b"\0\1rest")
    assert done.status == FINDING
    assert headlines(done)[3:] == [f"byte {len(STREAM)}: no packet, 6 bytes, not valid"]
    assert done.out.splitlines()[-1].startswith("base.")


def test_a_packet_whose_end_is_missing_is_shown_as_far_as_it_goes() -> None:
    done = in_process("decode", "-", stdin=PING + MESSAGE[:-40])
    assert done.status == FINDING
    assert headlines(done)[1].startswith("byte 24: no whole packet")
    assert "user.source_queue_manager" in done.out
    assert f"must be {len(MESSAGE) - 40:#x}" in done.out


def test_programs_get_an_object_for_each_with_its_offset() -> None:
    done = in_process("decode", "--json", "-", stdin=STREAM + b"\0rest")
    shown = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["offset"], each["size_bytes"], each["valid"]) for each in shown] == [
        (0, 572, True),
        (572, 24, True),
        (596, len(MESSAGE), True),
        (len(STREAM), 5, False),
    ]
    assert [each["kind"] for each in shown][1::2] == ["Ping", "no packet"]


def test_more_than_the_limit_is_left_out_and_said() -> None:
    done = in_process("decode", "--limit", "2", "-", stdin=STREAM)
    assert (done.status, len(headlines(done))) == (DONE, 2)
    assert done.complaint == f"{len(MESSAGE)} bytes more, from byte 596 on; --limit shows more than 2 packets"


def test_a_frame_that_was_copied_whole_is_read_behind_its_headers() -> None:
    done = in_process("decode", "-", stdin=xxd(in_tcp(HELLO + MESSAGE)).encode())
    assert done.status == DONE
    assert headlines(done) == [
        "byte 54: EstablishConnection, 572 bytes",
        f"byte 626: express UserMessage, {len(MESSAGE)} bytes",
    ]


def test_queue_jumper_is_named_with_the_field_that_shows_it(tmp_path: Path) -> None:
    (tmp_path / "packet.bin").write_bytes(over_http(headers(characters=2**31 + 15)))
    done = in_process("decode", tmp_path / "packet.bin")
    assert done.status == FINDING
    [line] = [line for line in done.out.splitlines() if "QueueJumper" in line]
    assert line.startswith("srmp_envelope.data_length at byte ")
    assert "srmp_envelope.header_id" in done.out


def test_what_cannot_be_asked_of_pasted_packets_is_misuse() -> None:
    for option in ("--summary", "--diagram", "--kind=Ping"):
        done = in_process("decode", option, PING.hex())
        assert (done.status, done.out) == (MISUSE, "")
        assert "not a capture" in done.complaint


def test_frames_that_were_copied_are_all_shown_and_what_carries_nothing_is_said() -> None:
    text = "".join(
        f"12:00:00 IP a > b: length 9\n{xxd(in_tcp(data))}" for data in (HELLO, b"", MESSAGE, HELLO)
    )
    done = in_process("decode", "-", stdin=text.encode())
    assert done.status == DONE
    assert [line.split(": ")[1].split(",")[0] for line in headlines(done)] == [
        "EstablishConnection",
        "express UserMessage",
        "EstablishConnection",
    ]
    assert done.complaint == "left out: 1 dump of frames that carry no packet"


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 4,
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"MZ" + bytes(400),
        b"\x10\0",
        b"LIOR" + bytes(8),
        b"0123456789abcdef" * 8,
        b"1,22,3,200,17,8,9,10,11,12",
        base64.b64encode(bytes(range(90))),
    ],
    ids=lambda data: repr(data[:8]),
)
def test_what_has_neither_signature_is_neither_a_packet_nor_a_capture(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(data)
    for done in (in_process("decode", tmp_path / "it"), in_process("decode", "-", stdin=data)):
        assert (done.status, done.out) == (MISUSE, "")
        assert len(done.err.splitlines()) == 1


def test_a_packet_with_a_broken_head_is_still_shown_and_so_is_one_behind_other_bytes() -> None:
    for broken in (b"\x11" + MESSAGE[1:], MESSAGE[:8] + bytes(4) + MESSAGE[12:]):
        done = in_process("decode", "-", stdin=broken)
        assert done.status == FINDING
        assert "base.version_number" in done.out
    done = in_process("decode", "-", stdin=b"\0\1some header" + MESSAGE)
    assert headlines(done) == [f"byte 13: express UserMessage, {len(MESSAGE)} bytes"]
    assert done.complaint == "left out: 13 bytes that begin no packet"


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    sample, link = ROOT / "captures/samples/window.pcapng", tmp_path / "again.pcapng"
    link.symlink_to(sample)
    done = in_process("decode", sample, link, "--limit", "1")
    assert done.complaint == f"'{link}' is named twice; it is read once"
    assert done.out == in_process("decode", link, "--limit", "1").out
