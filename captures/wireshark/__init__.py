"""A dissector for Wireshark and tshark that is generated from the layouts of mqproto/wire."""

from mqproto.captures.wireshark.script import dissector

__all__ = ["dissector"]
