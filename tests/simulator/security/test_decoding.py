"""`mqproto decode --keys` as a person types it: decrypted bodies, verified signatures, and no secret in its output."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from mqproto.captures.pipeline.engines.localengine import LocalEngine
from mqproto.captures.pipeline.run.job import Wanted, analyse
from mqproto.captures.pipeline.tables.tables import Tables, TablesError
from mqproto.simulator.cli.cli import DONE, FINDING, MISUSE
from mqproto.wire import encode_packet
from mqproto.wire.layouts.keyblobs import RC4
from tests.captures.decode.security.sent import (
    BODY,
    ENHANCED,
    alice,
    plain,
    sealed_for,
    signed_by,
    write_keys,
)
from tests.captures.wireshark.dissecting import conversation, write_capture
from tests.examples import poked
from tests.security.keys import own_key, secret_forms
from tests.simulator.typed import in_process

SENT = [
    encode_packet(message)
    for message in (
        plain(message_id=1),
        signed_by(plain(message_id=2)),
        sealed_for(plain(message_id=3, body_type=8, body="bolt".encode("utf-16-le"))),
        sealed_for(signed_by(plain(message_id=4)), ENHANCED, RC4),
        sealed_for(plain(message_id=5, body=bytes(range(40))), ENHANCED, RC4),
    )
]
FORGED = poked(
    encode_packet(signed_by(plain(message_id=6))), "properties.message_body", BODY.replace(b"17", b"71")
)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path)


def capture_of(folder: Path, *packets: bytes) -> Path:
    return write_capture(folder / "run.pcapng", [conversation(1, *packets)])


def test_bodies_are_shown_in_clear_and_signatures_judged_below_their_packets(
    tmp_path: Path, keys: Path
) -> None:
    capture = capture_of(tmp_path, *SENT)
    done = in_process("decode", capture, "--keys", keys)
    assert (done.status, done.err) == (DONE, "")
    below = [line.strip() for line in done.out.splitlines() if line.startswith("        ")]
    pem = keys / "aes.pem"
    by = "signature holds, MSMQ 2.0, by CN=alice (self-signed, not in --keys)"
    assert below == [
        by,
        f"body of 8 bytes opened with {pem}: 'bolt'",
        f"body of 16 bytes opened with {pem}: 'order 17: a bolt'",
        by,
        f"body of 40 bytes opened with {pem}; not proved, as RC4 has no padding that could be wrong: "
        "00010203 04050607 08090a0b 0c0d0e0f ...",
    ]
    assert [re.search(r"(signed.*)?$", line)[0] for line in done.out.splitlines() if "msg 4" in line] == [  # type: ignore[index]
        "signed SHA-512 encrypted RC4-128"
    ]


def test_a_row_has_the_body_as_that_of_a_plain_message(tmp_path: Path, keys: Path) -> None:
    capture, crt = capture_of(tmp_path, *SENT), tmp_path / "alice.crt"
    crt.write_bytes(alice().pem())
    done = in_process("decode", capture, "--keys", keys, "--keys", crt, "--json", "-v")
    rows = [json.loads(line) for line in done.out.splitlines()]
    names = ("verified", "signer", "plain_bytes", "body_text", "plain_body")
    assert [tuple(row.get(name) for name in names) for row in rows] == [
        (None, None, None, "order 17: a bolt", None),
        (True, "CN=alice", None, "order 17: a bolt", None),
        (None, None, 8, "bolt", "bolt".encode("utf-16-le").hex()),
        (True, "CN=alice", 16, "order 17: a bolt", BODY.hex()),
        (None, None, 40, None, bytes(range(40)).hex()),
    ]
    [closed] = map(json.loads, in_process("decode", capture, "--json", "--limit", "3").out.splitlines()[2:3])
    assert [closed[name] for name in (*names[:-1], "signature", "decryption")] == [None] * 6


def test_a_signature_that_does_not_hold_is_status_1(tmp_path: Path, keys: Path) -> None:
    capture = capture_of(tmp_path, FORGED)
    assert in_process("decode", capture).status == DONE
    done = in_process("decode", capture, "--keys", keys)
    assert done.status == FINDING
    wrong = "note bad-signature: #1 the signature does not hold, by its certificate of CN=alice  [MS-MQQB] 3.1.5.8.3"
    assert f"        {wrong}\n" in done.out
    assert done.out.endswith("1 packet; 0 faults, 1 note\n")


def test_a_message_that_was_pasted_is_opened_as_well(keys: Path) -> None:
    done = in_process("decode", SENT[2].hex(), "--keys", keys)
    assert done.status == DONE
    assert 'content {"kind": "VT_BSTR", "value": "bolt"}' in done.out
    assert f"body of 8 bytes opened with {keys}/aes.pem: 'bolt'" in done.out
    row = json.loads(in_process("decode", "-", "--keys", keys, "--json", stdin=FORGED).out)
    assert (row["verified"], row["plain_body"]) == (False, None)
    done = in_process("decode", "-", "--keys", keys, stdin=FORGED)
    assert (done.status, done.out.count("the signature does not hold")) == (FINDING, 1)


def test_no_output_has_a_secret(tmp_path: Path, keys: Path) -> None:
    capture, hurt = capture_of(tmp_path, *SENT, FORGED), tmp_path / "hurt"
    blob = bytearray(own_key(512).blob())
    blob[90] ^= 1
    hurt.write_bytes(blob)
    said = b""
    for arguments in ((), ("-v",), ("--json",), ("--json", "-v"), ("--summary",), ("--keys", hurt)):
        done = in_process("decode", capture, "--keys", keys, *arguments)
        said += done.out.encode() + done.err.encode()
    said += in_process("decode", SENT[3].hex(), "--keys", keys, "--json").out.encode()
    assert b"bolt" in said
    assert not [form for form in secret_forms(own_key(512)) if form in said]


def test_tables_have_what_keys_say_and_never_the_keys(tmp_path: Path, keys: Path) -> None:
    capture, tables = capture_of(tmp_path, *SENT, FORGED), tmp_path / "tables"
    done = in_process("decode", capture, "--tables", tables, "--keys", keys, "--body-text")
    assert done.status == FINDING
    assert re.search(r"note  bad-signature +1  a signature that does not hold", done.out)
    names = ["verified", "signer", "plain_bytes", "body_text", "signature", "decryption"]
    rows = Tables(tables).read("packets", columns=names).to_pylist()
    by, opened = "holds, MSMQ 2.0, by CN=alice (self-signed, not in --keys)", f"opened with {keys}/aes.pem"
    unproved = f"{opened}; not proved, as RC4 has no padding that could be wrong"
    assert [tuple(row.values()) for row in rows] == [
        (None, None, None, "order 17: a bolt", None, None),
        (True, None, None, "order 17: a bolt", by, None),
        (None, None, 8, "bolt", None, opened),
        (True, None, 16, "order 17: a bolt", by, opened),
        (None, None, 40, None, None, unproved),
        (False, None, None, "order 71: a bolt", "does not hold, by its certificate of CN=alice", None),
    ]
    assert in_process("decode", capture, "--tables", tables, "--keys", keys).status == FINDING, "once more"

    secrets = secret_forms(own_key(512))
    said = [str(table.to_pylist()) for name in Tables(tables).names for table in [Tables(tables).read(name)]]
    kept = [path.read_bytes() for path in tables.rglob("*") if path.is_file()]
    assert not [form for form in secrets for data in (*map(str.encode, said), *kept) if form in data]


def test_tables_made_without_keys_are_not_read_again_with_some(tmp_path: Path, keys: Path) -> None:
    capture, tables = capture_of(tmp_path, SENT[0]), tmp_path / "tables"
    with LocalEngine() as engine:
        analyse([str(capture)], Tables(tables), engine)
        with pytest.raises(
            TablesError, match=f"{tables} has tables that were made without keys: analyse all"
        ):
            analyse([str(capture)], Tables(tables), engine, Wanted(keys=[str(keys)]))


def test_what_cannot_be_meant_is_misuse_in_one_line(tmp_path: Path, keys: Path) -> None:
    capture = capture_of(tmp_path, *SENT)
    for mode in ("--summary", "--diagram"):
        done = in_process("decode", capture, "--keys", keys, mode)
        assert done.status == MISUSE
        assert done.complaint == "--keys is for packets: leave --summary, --follow, --diagram and --svg out"
    assert in_process("decode", capture, "--keys", capture).complaint.startswith(f"{capture}: no public key")


def test_without_the_extra_it_is_said_which_brings_it_and_all_else_goes_on(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = capture_of(tmp_path, *SENT)
    for name in [name for name in sys.modules if re.match(r"mqproto\.security\b|cryptography\b", name)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = in_process("decode", capture, "--keys", keys)
    assert (done.status, done.complaint) == (
        MISUSE,
        "cryptography is not installed: pip install 'mqproto[security]'",
    )
    assert in_process("decode", capture, "--json").status == DONE
