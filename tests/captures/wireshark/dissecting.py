"""Lets tshark dissect packets with our dissector, and reads its results from PDML."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.captures.files.frame import Frame
from mqproto.captures.files.pcapng import PcapngWriter
from mqproto.captures.net.conversation import Side, TcpConversation
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.wireshark import dissector
from mqproto.wire import Inspection, PacketBuffer, SeenField

T = TypeVar("T")

needs_tshark: Final = pytest.mark.skipif(
    shutil.which("tshark") is None, reason="tshark is not installed: apt-get install tshark"
)
SERVER: Final = Endpoint("127.0.0.2", 1801)
TIMEOUT_S: Final = 200
NO_XML: Final = {0xFFFE: "�", 0xFFFF: "�"}
"""Characters that tshark writes into PDML although XML cannot contain them, and their replacements."""


@dataclass(slots=True)
class Seen:
    """One packet as tshark shows it.

    fields: for each field that has a value, its name, its offset from the packet's first byte, its size, its bytes in
        hex, and its value.
    bits: the name and the value of each part of a flag word.
    findings: the texts of expert information; `fault_count` of them say that a rule is broken.
    further: the name and the value of each field that the dissector adds to those of the packet.
    """

    text: str
    fields: list[tuple[str, int, int, str, str]] = field(default_factory=list)
    bits: list[tuple[str, int]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    fault_count: int = 0
    further: list[tuple[str, str]] = field(default_factory=list)


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """Return `count` values of a strategy, all for a single run of tshark."""
    values: list[T] = []

    @settings(
        max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(value: T) -> None:
        values.append(value)

    collect()
    return values


def write_capture(path: Path, conversations: Iterable[list[bytes]], *, snapshot_bytes: int = 2**18) -> Path:
    """Write a capture of these conversations, each given as a list of frames; bytes beyond the snapshot length are left
    out.
    """
    with path.open("wb") as file, PcapngWriter(file) as writer:
        for second, frames in enumerate(conversations):
            for frame in frames:
                kept = frame[:snapshot_bytes]
                time_ns = 1_700_000_000_000_000_000 + second * 1_000_000_000
                writer.write(Frame(time_ns, kept, missing_bytes=len(frame) - len(kept)))
    return path


def conversation(
    number: int, *said: bytes, segment_bytes: int = 60_000, server: Endpoint = SERVER
) -> list[bytes]:
    """Return the frames of a connection on which the client sends all these bytes, divided into segments of a given
    size.
    """
    talk = TcpConversation(
        Endpoint(f"127.1.{number >> 8 & 255}.{number & 255}", 40_000 + number % 20_000),
        server,
        segment_bytes=segment_bytes,
    )
    return [*talk.open(), *(frame for data in said for frame in talk.send(Side.CLIENT, data))]


@cache
def written() -> str:
    """Return the dissector, which is generated once for all tests."""
    return dissector()


def tshark(path: Path, folder: Path, *arguments: str) -> str:
    """Return tshark's output for a capture with our dissector.

    Raises:
        AssertionError: Lua or tshark complained.
    """
    script = folder / "msmq.lua"
    script.write_text(written(), "utf-8")
    command = ["tshark", "-n", "-X", f"lua_script:{script}", "-r", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("Running as user")]
    assert (done.returncode, complaints) == (0, [])
    assert "Lua Error" not in done.stdout, re.findall(r"Lua Error[^&\n]*", done.stdout)[:3]
    assert "Dissector bug" not in done.stdout
    return done.stdout


def dissected(path: Path, folder: Path, *arguments: str) -> list[Seen]:
    """Return every packet that our dissector found in a capture, in the capture's order."""
    only_ours = ("-Y", "msmq", "-J", "msmq", "-T", "pdml")
    return list(seen_in(ET.fromstring(tshark(path, folder, *only_ours, *arguments).translate(NO_XML))))


def seen_in(element: ET.Element) -> Iterator[Seen]:
    """Return the packets that our dissector found in an element of PDML."""
    return (_seen(proto) for proto in element.iter("proto") if proto.get("name") == "msmq")


def _seen(proto: ET.Element) -> Seen:
    seen = Seen(proto.get("showname", "").removeprefix("Microsoft Message Queuing, "))
    start = int(proto.get("pos", ""))
    _walk(proto, start, seen)
    return seen


def _walk(element: ET.Element, start: int, seen: Seen) -> None:
    for child in element:
        name = child.get("name", "")
        if name == "msmq.content":
            said = [(each.get("name", ""), each.get("show", "")) for each in child.iter("field")]
            seen.further += [each for each in said if each[0].startswith("msmq.content")]
        elif name == "_ws.expert":
            expert = {each.get("name"): each.get("show", "") for each in child}
            seen.findings.append(expert["_ws.expert.message"])
            seen.fault_count += "msmq.malformed" in expert
        elif name in ("msmq.order_ack", "msmq.final_ack", "msmq.protection"):
            seen.further += [(each.get("name", ""), each.get("show", "")) for each in child.iter("field")]
        elif name == "msmq.destination":
            seen.further.append((name, child.get("show", "")))
        elif "unmaskedvalue" in child.attrib:
            seen.bits.append((name, int(child.get("value", ""), 16)))
        else:
            if child.get("value") and not _holds(child, name):
                seen.fields.append(
                    (
                        name,
                        int(child.get("pos", "")) - start,
                        int(child.get("size", "")),
                        child.get("value", ""),
                        child.get("show", ""),
                    )
                )
            _walk(child, start, seen)


def _holds(element: ET.Element, name: str) -> bool:
    """Return whether the bytes of a field are also shown below it as separate fields."""
    return any(
        "unmaskedvalue" not in each.attrib and each.get("name", "").startswith(f"{name}.") for each in element
    )


def cut(data: bytes) -> Iterator[bytes]:
    """Yield the parts of a stream that are dissected as packets: the whole packets, then the rest if no packet begins
    there.
    """
    buffer = PacketBuffer()
    found: list[bytes] = []
    with suppress(WireFormatError):
        found = buffer.feed(data)
    yield from found
    if buffer.fault is not None:
        yield data[sum(map(len, found)) :]


def expected_fields(inspection: Inspection) -> list[tuple[str, int, int, str]]:
    """Return the name, offset, size and bytes of each field, as our own decoder sees them."""
    return [(filter_name(each), each.offset, each.size, each.raw.hex()) for each in inspection.fields]


def filter_name(seen: SeenField) -> str:
    """Return a field's name in filters: without indices, but with its kind if it may be one of several."""
    name = "msmq." + re.sub(r"\[\d+\]", "", seen.name)
    if re.search(r"user\.(destination|admin|response)_queue$|\.format_name$", name):
        kinds: dict[type, str] = {int: "identifier", bytes: "guid", str: "name"}
        name += "." + kinds[type(seen.value)]
    return name
