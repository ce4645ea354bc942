"""The options of `mqproto replay`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mqproto.simulator.base.program.declared import ARGUMENT, value


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Which packets to play, and to which peer; side and connection are as for `mqproto.captures.script.choose`."""

    capture: Annotated[Path, ARGUMENT, "The capture: pcap or pcapng, compressed or not."]
    to: Annotated[str, "The live peer to play to.", value("HOST[:PORT]")] = ""
    listen: Annotated[str, "Play the captured server to whoever connects here.", value("HOST[:PORT]")] = ""
    side: Annotated[
        str,
        "The side to play: client, server or HOST[:PORT]; by default the side that sent the most messages.",
    ] = ""
    connection: Annotated[
        int | None, "Only the connection with this number in Wireshark's tcp.stream.", value(min=0)
    ] = None
    message: Annotated[
        str | None, r"Only this message: GUID\NUMBER, NUMBER, or its whole label.", "-m", value("MESSAGE")
    ] = None
    node: Annotated[
        str | None, "Instead of --to: let this node send the message of --message as a new one.", "-n"
    ] = None
    maps: Annotated[
        list[str] | None, "Send messages for one queue to another; repeatable.", "--map", value("FROM=TO")
    ] = None
    identity: Annotated[
        str, "The queue manager to play: captured (the default on loopback), new, or a GUID."
    ] = ""
    speed: Annotated[str, "captured, max or a factor. By default max; with --as-captured, captured."] = ""
    timeout_s: Annotated[
        float, "Give up after this many seconds without progress.", value(min=0.1, max=3_600)
    ] = 15
    as_captured: Annotated[bool, "Send every byte exactly as it was captured."] = False
    allow_remote: Annotated[bool, "Allow addresses beyond loopback."] = False
