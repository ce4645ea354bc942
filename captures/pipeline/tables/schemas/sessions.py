"""The tables of connections, of capture points, and of the files that were read."""

from __future__ import annotations

from typing import Final

from mqproto.captures.pipeline.tables.schemas.columns import Table, columns

BEGUN: Final = columns("""
series text  the capture that it is from
row_id integer  of its first packet
file text  of its first packet
frame integer  that ended its first packet
file_offset integer  where the record of the frame that began that is in the unpacked file, in bytes
""")
"""The columns about the first packet of a session or sequence, in the tables of both."""

SESSIONS: Final = Table(
    "A connection as one interface saw it, and its session.",
    (
        *BEGUN,
        *columns("""
connection integer  counted from 0 over the series
interface short  where it was seen, counted from 0 over its file
client_address text  the end that asked for the session
client_port short  of TCP
server_address text  the other one
server_port short  of TCP
client_key text  the queue manager there: a GUID where a handshake told it, else an address
server_key text  the queue manager at the other end
client text  a name by the topology, else the queue manager or the address
server text  the same for the other end
first_ns integer  its first packet, since 1970
opened_ns integer  when the handshake was complete, since 1970, if the capture shows that
last_ns integer  its last packet, since 1970
skew_ns integer  how far times went back between packets, lost bytes aside: halves of a TAP may have clocks of their own
begun flag  whether the captures have its beginning, or lack bytes of that
handshake text  how far it came: nothing, asked, granted, proposed, open, refused
state text  at the end: as handshake, or `unknown` where the capture lacks something or somebody was out of turn,
    or `encrypted`
recoverable_ack_timeout_ms integer  as the ends agreed
ack_timeout_ms integer  as the ends agreed
"""),
        *(
            column
            for end in ("client", "server")
            for column in columns(
                """
{end}_window integer  the largest window that it has announced, in packets
{end}_packets integer  how many it sent
{end}_bytes integer  how many it sent
{end}_messages integer  how many UserMessages it sent
{end}_session_acks integer  SessionHeaders, alone or riding
{end}_unacknowledged integer  its messages that had no answer at the end; null where the capture does not tell
{end}_unsaved integer  those that nobody had said to have saved
{end}_missing_bytes integer  of what it sent, not in the capture
{end}_losses integers  the numbers of its packets before which the captures lack what may have been messages of it;
    with 64 it is taken to have more; the next four say more of each
{end}_last_ns integer  its last packet, since 1970
{end}_lost_since_ns integers  the packet before, since 1970; the least number if there is none
{end}_lost_until_ns integers  that packet
{end}_lost_bytes integers  how many lack; the largest number where nobody knows
{end}_lost_recoverable_bytes integers  those of recoverable messages; 0 where a SessionHeader counts none
{end}_snapped flag  whether all of them were in frames that the captures have, and cut
{end}_rest_bytes integer  how much it sent behind its last packet; null where the captures do not tell
{end}_rest_came_bytes integer  how much of that can have come to the other end; null where the captures do not tell
{end}_ending text  finished (FIN), reset (RST), or open: the captures show no end of it
""",
                end=end,
            )
        ),
        *columns("""
faults integer  findings about the session itself
notes integer  findings about the session itself
"""),
    ),
)

STREAMS: Final = Table(
    "What one side of a connection sent, as one interface saw it; of MSMQ's connections and of others.",
    columns("""
series text  the capture that it is from
file text  of the frame with which the connection began
frame integer  with which the connection began, counted from 1 over its file
connection integer  counted from 0 over the series
interface short  where it was seen, counted from 0 over its file
source_address text  the side that sent
source_port short  of TCP
destination_address text  the other one
destination_port short  of TCP
from_start flag  whether the capture has its first byte for certain
ending text  finished (FIN), reset (RST), or open: the captures show no end of it
sent_bytes integer  how much it sent in all; null where the capture does not tell
came_bytes integer  how much of that can have come to the other side; null where the capture does not tell
data_bytes integer  what could be read, repetitions and gaps left aside
gap_count integer  how often something was sent that the capture lacks
missing_bytes integer  how much that was
snapped_bytes integer  what of it frames had which the capture cut; these are not gaps
retransmission_count integer  segments of which some bytes had been there before
conflict_count integer  those that had another byte somewhere
early_count integer  segments that came before bytes that precede them, or whose predecessors the capture lacks
keep_alive_count integer  repetitions of the last byte that ask whether anybody is there
packet_count integer  packets that are there whole, whether valid or not
packet_bytes integer  of these
cut_count integer  packets of which the capture has the beginning, and lacks something behind it
cut_bytes integer  of packets that began and were never whole
headless_bytes integer  of packets whose beginning the capture lacks
refused_bytes integer  from where a packet should begin, and does not, to where one does
hidden_bytes integer  that frames had which the capture cut, and that are of no packet of which it has the head
resumed_count integer  how often reading went on behind such bytes, at a packet's head
"""),
)

CAPTURES: Final = Table(
    "A file that was read: frames = segment_frames + ping_frames + other_frames.",
    columns("""
series text  the capture that it belongs to
file text  its path or URI
fingerprint text  by which it is known again, wherever it lies: of its size and of bytes all over it
size_bytes integer  as it lies there
form text  pcap or pcapng
packing text  nothing, gzip or zstd
ranges short  in how many pieces it was read
frames integer  how many it has
segment_frames integer  those with a TCP segment
ping_frames integer  those with a Ping, [MS-MQQB] 2.2.7
other_frames integer  all others
other_reasons counts  what those hold, with their numbers
cut_frames integer  those that the capture cut
untimed_frames integer  those without a time, or with one before 1823 or after 2116
back_ns integer  how far the time of a frame is before that of an earlier one, at most
first_ns integer  the first frame, since 1970
last_ns integer  the last frame, since 1970
damage text  what is wrong with it; what came before was read
damage_offset integer  where, in bytes; a packed file is counted unpacked
"""),
)

CLOCKS: Final = Table(
    "How far the clock of a capture point is ahead of the reference.",
    columns("""
series text  the capture point: its series
interface short  and its interface there
reference_series text  the capture point whose clock all times of messages are by
reference_interface short  and its interface there
offset_ns integer  how far it is ahead when it shows at_ns
at_ns integer  since 1970
drift_ppb integer  by how many billionths of a second more in each second; null where the clocks may go alike
uncertainty_ns integer  how far from that it may be, from the first to the last packet; null where nobody knows
packets integer  how many both saw; where there are none, messages that came by one before the other
"""),
)
