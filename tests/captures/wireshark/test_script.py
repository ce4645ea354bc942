"""The whole script."""

from __future__ import annotations

import re

import pytest

from mqproto.captures.wireshark import dissector, script
from mqproto.simulator.cli.cli import run_command
from mqproto.wire.packets import user_message_packet


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["wireshark"]) == 0
    assert capsys.readouterr().out == dissector()


def test_the_script_is_the_same_each_time_and_in_ascii() -> None:
    assert dissector() == dissector()
    assert dissector().isascii()


def test_no_offset_stands_in_what_is_written_by_hand() -> None:
    """The Lua code, except for bodies.lua, takes every position, size and mask from the layouts."""
    by_hand = "".join(map(script._resource, ("reading.lua", "order.lua", "dissector.lua")))
    code = re.sub(r'--.*|"(?:\\.|[^"\\])*"', "", by_hand)
    numbers = {int(number, 0) for number in re.findall(r"(?<![\w.])(?:0x[0-9a-fA-F]+|\d+)", code)}
    # Of bits and bytes, of UTF-16, of a GUID's groups and of two limits of ours.
    assert numbers <= {0, 1, 2, 4, 6, 9, 16, 32, 40, 120, 256, 10_000}


def test_every_rule_of_the_layouts_is_in_the_script() -> None:
    """Each section that a layout cites is cited in the script, and each limit appears there."""
    text = dissector()
    for part in user_message_packet.layout.subcons:
        if section := getattr(getattr(part, "subcon", part), "section", ""):
            assert section in text
    for limit in (
        "at least 120, the smallest UserMessage",
        "0, 2, 3, 5, 6 or 7",
        "at most 0xfffffffe",
        "even,",
    ):
        assert limit in text
