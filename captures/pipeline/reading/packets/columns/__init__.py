"""Packet bytes as columns: one Arrow table of many packets, read all at once by the layouts of mqproto.wire."""

from mqproto.captures.pipeline.reading.packets.columns.schema import PACKET_SCHEMA
from mqproto.captures.pipeline.reading.packets.columns.table import packet_columns, ping_columns

__all__ = ["PACKET_SCHEMA", "packet_columns", "ping_columns"]
