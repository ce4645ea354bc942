"""Seeds: valid, of every kind, and the same for the same random numbers."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from mqproto.base.errors import UsageError
from mqproto.simulator.fuzz.parser.seeds import a_ping, examples, from_files, generated
from mqproto.simulator.fuzz.roles import ROLES
from mqproto.wire import UserMessage, decode_packet, inspect_packet, ping_packet

OTHERWISE = {("[MS-MQQB] 2.2.7", name) for name in ("flags", "signature", "cookie", "qm_guid")}
"""Fields of the Ping, which is not a packet of a session."""


def test_examples_are_valid_and_have_every_field_that_there_is() -> None:
    seen = set()
    for packet in examples():
        assert inspect_packet(packet).is_valid
        seen |= {(field.section, field.name.rpartition(".")[2]) for field in inspect_packet(packet).fields}
    empty = {"trailing", "base", "user", "internal"}
    missing = {name for name in ROLES if name[1] not in empty} - seen - OTHERWISE
    assert {name for _, name in missing if "padding" not in name and not is_header(name)} == set()
    assert ping_packet.decode(a_ping())


def is_header(name: str) -> bool:
    """Whether a name in a layout stands for other fields, and so is not a field itself."""
    whole = [field.name for field in dataclasses.fields(UserMessage)]
    lists = ("destination", "administration", "response", "signature", "format_name_list", "elements")
    return name in whole or name in lists or name in ("tx_sequence_id", "encryption_key")


def test_generated_packets_are_valid_many_kinds_of_them_and_repeat() -> None:
    dice, again = random.Random(2), random.Random(2)
    packets = [generated(dice) for _ in range(300)]
    assert packets == [generated(again) for _ in range(300)]
    messages = [decode_packet(packet) for packet in packets]
    for header in ("transaction", "security", "debug", "soap", "session", "multi_queue_format"):
        having = sum(getattr(message, header) is not None for message in messages)
        assert 0 < having < 200, header


def test_files_hold_bytes_or_hex_and_folders_hold_files(tmp_path: Path) -> None:
    packets = examples()[:3]
    (tmp_path / "a.bin").write_bytes(packets[0])
    (tmp_path / "b.hex").write_text(packets[1].hex(" "))
    (tmp_path / "c.toml").write_text("about a.bin")
    (tmp_path / "folder").mkdir()
    assert from_files([tmp_path]) == packets[:2]
    assert from_files([tmp_path / "b.hex", tmp_path / "a.bin"]) == packets[1::-1]
    with pytest.raises(UsageError):
        from_files([tmp_path / "not there"])
