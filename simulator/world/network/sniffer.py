"""A sniffer of a world, which sees all frames of all links as they leave their senders.

The sniffer is at the place that all packets pass as they leave their nodes, like a sniffer on the loopback of one
machine. A link delays packets only after this place. So the sniffer sees data that left its sender even if the
connection broke before the data arrived. It sees an acknowledgment when the acknowledged data has arrived. The network
does not lose segments, so the sniffer never sees a segment twice. Data that is acknowledged late was stalled, and data
that never arrives is never acknowledged.

Its clock is the world's, in whole milliseconds. Nothing here uses dice or decides anything, so a world runs in the same
way whether it is watched or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Final

from mqproto.captures.net.conversation import Segments, Side
from mqproto.captures.net.tcp import ACK, FIN, MAX_SEGMENT_BYTES, RST, SYN, Endpoint
from mqproto.captures.net.udp import encode_datagram
from mqproto.routing import PING_PORT
from mqproto.simulator.base.recorder import SEQUENCE_STEP, Recorder
from mqproto.simulator.topology.nodes import DEFAULT_PORT
from mqproto.simulator.world.network.events import EventQueue

FIRST_PORT: Final = 49_152
"""The port of a node's first outgoing connection; each later connection takes the next port."""
PORTS: Final = 65_536 - FIRST_PORT


class Sniffer:
    """Writes the frames that cross the links of one world to a pcapng file.

    The nodes are at 127.0.0.1, 127.0.0.2 and so on, in the order of the scenario. Strangers come after them.

    Args:
        file: the pcapng file, which stays open. `close` checks whether everything was written to it.
        names: the names of the nodes.
        segment_bytes: the limit for the payload of one frame.
    """

    def __init__(
        self,
        file: BinaryIO,
        names: Sequence[str],
        events: EventQueue,
        *,
        segment_bytes: int = MAX_SEGMENT_BYTES,
    ) -> None:
        self._events = events
        self._segment_bytes = segment_bytes
        self._hosts = {name: f"127.0.0.{place}" for place, name in enumerate(names, 1)}
        comment = ", ".join(f"{name} is {host}" for name, host in self._hosts.items())
        self._next_ports: dict[str, int] = {}
        self._connection_count = 0
        self._recorder = Recorder(file, comment=comment, clock=self._now_ns)

    @property
    def frame_count(self) -> int:
        """The number of frames written."""
        return self._recorder.frame_count

    def calls(self, client: str, server: str) -> Talk:
        """Record that a node sends a SYN, to open a connection to another node."""
        self._connection_count += 1
        sequence = self._connection_count * SEQUENCE_STEP
        segments = Segments(
            self._fresh_port(client),
            Endpoint(self._host(server), DEFAULT_PORT),
            segment_bytes=self._segment_bytes,
            client_sequence=sequence % 2**32,
            server_sequence=~sequence % 2**32,
        )
        return Talk(self, segments)

    def pings(self, client: str, server: str, request: bytes, comment: str = "") -> Endpoint:
        """Record a datagram from a node to another node's ping port. Return the endpoint that it left from."""
        source = self._fresh_port(client)
        self.sees(encode_datagram(source, Endpoint(self._host(server), PING_PORT), request), comment=comment)
        return source

    def answers_ping(self, server: str, client: Endpoint, response: bytes) -> None:
        """Record the answer to a Ping. The answer leaves from the ping port."""
        self.sees(encode_datagram(Endpoint(self._host(server), PING_PORT), client, response))

    def sees(self, *frames: bytes, comment: str = "") -> None:
        """Record frames that cross a link now."""
        self._recorder.write(list(frames), comment)

    def close(self) -> None:
        """Write the frames that are still in memory.

        Raises:
            OSError: not everything could be written to the file.
        """
        self._recorder.close()

    def _now_ns(self) -> int:
        return self._events.begins_utc_s * 1_000_000_000 + self._events.now_ms * 1_000_000

    def _host(self, name: str) -> str:
        return self._hosts.setdefault(name, f"127.0.0.{len(self._hosts) + 1}")

    def _fresh_port(self, name: str) -> Endpoint:
        number = self._next_ports.get(name, 0)
        self._next_ports[name] = number + 1
        return Endpoint(self._host(name), FIRST_PORT + number % PORTS)


class Talk:
    """One connection as the sniffer sees it. Each method records what leaves or reaches one of its sides.

    As in reality, the operating systems of both sides answer by themselves. They acknowledge arriving data, and refuse
    data for a program that is gone.
    """

    def __init__(self, sniffer: Sniffer, segments: Segments) -> None:
        self._sniffer = sniffer
        self._segments = segments
        self._finished: set[Side] = set()
        self._reset: set[Side] = set()
        self._leave(Side.CLIENT, SYN)

    def accepted(self) -> None:
        """Record that the SYN has arrived, and that a program is listening."""
        self._segments.arrive(Side.SERVER)
        self._leave(Side.SERVER, SYN | ACK)

    def refused(self) -> None:
        """Record that the SYN has arrived, and that no program is listening."""
        self._segments.arrive(Side.SERVER)
        self.reset(Side.SERVER)

    def established(self) -> None:
        """Record that the server's SYN has arrived."""
        if not self._reset:
            self._segments.arrive(Side.CLIENT, 1)
            self._leave(Side.CLIENT, ACK)

    def leaves(self, sender: Side, data: bytes, comment: str = "") -> None:
        """Record that a program sends data."""
        self._sniffer.sees(*self._segments.leave_data(sender, data), comment=comment)

    def arrives(self, receiver: Side, size_bytes: int, *, wanted: bool) -> None:
        """Record that bytes arrive. `wanted` says whether a program still reads them.

        If their sender has reset the connection, the reset arrives after the bytes. Until then, everything that the
        receiver sends acknowledges the bytes.
        """
        if self._reset or not size_bytes:
            if wanted and receiver not in self._reset:
                self._segments.arrive(receiver, size_bytes)
            return
        if not wanted:
            self.reset(receiver)
            return
        self._segments.arrive(receiver, size_bytes)
        self._leave(receiver, ACK)

    def finished(self, sender: Side) -> None:
        """Record that a program has closed its end, either first or in answer to its peer."""
        if not self._reset and sender not in self._finished:
            self._finished.add(sender)
            self._leave(sender, FIN | ACK)

    def finish_arrives(self, receiver: Side, *, wanted: bool) -> None:
        """Record that the FIN arrives, after everything that the other side sent.

        A receiver that has already sent its own FIN only acknowledges the one that arrives. Otherwise, if `wanted` is
        set, the receiver sends its FIN with the acknowledgment; if not, it resets the connection.
        """
        if self._reset:
            return
        self._segments.arrive(receiver)
        if receiver in self._finished:
            self._leave(receiver, ACK)
        elif wanted:
            self.finished(receiver)
        else:
            self.reset(receiver)

    def reset(self, *senders: Side, comment: str = "") -> None:
        """Record that one side resets the connection, or that both do because something between them broke."""
        for sender in senders:
            if sender not in self._reset:
                self._reset.add(sender)
                self._sniffer.sees(self._segments.leave(sender, RST | ACK), comment=comment)

    def _leave(self, sender: Side, flags: int) -> None:
        self._sniffer.sees(self._segments.leave(sender, flags))
