"""The tables of packets: what each packet says by itself, and how it relates to its session and to other packets."""

from __future__ import annotations

from typing import Final

from mqproto.captures.pipeline.tables.schemas.columns import Table, columns

PLACE: Final = columns("""
series text  the capture that its file belongs to; packets and connections are counted over a series
row_id integer  of a packet in its series, from 1 on as packets could be read; bytes that begin no packet have one too
number integer  of a packet in its series, from 1 on; of bytes that begin no packet, that of the packet before them
file text  the file in which it began
frame integer  the frame that ended it, counted from 1 over its file
file_offset integer  where the record of the frame that began it is in the unpacked file, in bytes
""")
"""The columns that give the place of a packet."""

SAID: Final = columns("""
kind text  UserMessage, OrderAck, FinalAck, Ping, ...: one of mqproto.captures.decode.sight.Kind
size_bytes short  with its SessionHeader
valid flag  whether a queue manager accepts its bytes, as far as the capture has them
fault text  what is wrong with them
own_findings findings  what is wrong or odd in it, whatever came before; null for nothing
digest integer  of a UserMessage: equal for packets that differ in the hop count and the SessionHeader only;
    null where it is cut
priority short  of the BaseHeader, [MS-MQMQ] 2.2.19.1
trace flag  of the BaseHeader: whether it asks for reports on its way
time_to_reach_queue_s integer  of the BaseHeader
client text  the GUID of the queue manager that asks, of an EstablishConnection, [MS-MQQB] 2.2.3
server text  the GUID of the queue manager that is asked
refused flag  whether that refused; also of a Ping
cookie integer  of a Ping, [MS-MQQB] 2.2.7
recoverable_ack_timeout_ms integer  of ConnectionParameters, [MS-MQQB] 2.2.2
ack_timeout_ms integer  of ConnectionParameters
ack_number short  of a SessionHeader, alone or riding, [MS-MQMQ] 2.2.20.4: the last packet received
saved_first short  the first recoverable packet of which saved_flags tell
saved_flags integer  which of 32 recoverable packets from there on are saved
sent_count short  how many packets its sender has sent
recoverable_sent_count short  how many recoverable ones
window_size short  how many its sender takes without an answer; also of ConnectionParameters
message text  of a UserMessage: its queue manager and its number, as 557358D1-5055-9591-9549-97B6E611EA26\\5
source_manager text  the first of these, a GUID
message_id integer  the second
destination_manager text  the queue manager that it is addressed to, a GUID
queue text  the format name of its destination
admin_queue text  the format name of the queue for acknowledgments
response_queue text  the format name of the queue for answers
sent_time_s integer  when it was sent, since 1970, by the clock of its queue manager
time_to_be_received_s integer  for how long after that somebody may receive it
hop_count short  how many queue managers have passed it on
delivery text  express, recoverable or transactional; `recoverable or transactional` if it is cut before it says which
journal_negative flag  whether it becomes a dead letter if it fails
journal_positive flag  whether its source keeps it in its journal
message_class short  its number, [MS-MQMQ] 2.2.18.1.6
class_name text  the same, if it has a name
correlation text  20 bytes, as hexadecimal digits
label text  what its sender calls it
body_type integer  of its body, [MS-MQMQ] 2.2.18.1.5
application_tag integer  a number that means something to applications alone
body_offset short  where in the packet its body begins, in bytes; null where it is cut
body_bytes short  of its body
extension_bytes short  of its extension
body_text text  what the body says, as far as that is text and was asked for; of one that is encrypted, once it is
    opened
acknowledgments short  the flags that say which acknowledgments it asks for
security_header flag  whether it has one, [MS-MQMQ] 2.2.20.6; that alone proves nothing
sender_kind text  what it names as its sender, SID or queue manager, whether or not it is signed
sender_id text  that SID, or the GUID of that queue manager
signed text  by which hash, if it has a signature: MD5, SHA-1, SHA-256, SHA-512; of another one the number
encrypted text  with which cipher, if its body is: AES-256, RC2-40; of another one the number
verified flag  whether its signature holds, by the certificate that it carries or a key at hand; null where nobody
    could say
signer text  whom something at hand names that has proved it; null for one whom only the message itself names
signature text  the same in words, and why it was not checked; null where there were no keys at hand
decryption text  which key at hand has opened its body, or why none has
plain_bytes short  of its body in clear, if it was encrypted and was opened
sequence text  of a transactional message: its TxSequenceID
sequence_number integer  its number in the sequence
previous_number integer  the number of the one before it that was not confirmed when it was sent
first_in_transaction flag  whether it is the first of its transaction
last_in_transaction flag  whether it is the last
asks_final_ack flag  whether it asks for a FinalAck
ack_sequence text  of an OrderAck, [MS-MQQB] 2.2.4.1, or a FinalAck, 2.2.5.1: the sequence that it is about
ack_sequence_number integer  the number there
ack_previous_number integer  the number before that
ack_message text  of a FinalAck: the message that it is about, as `message`
""")
"""The columns for what a packet says by itself, named as in mqproto.captures.decode.row.PacketRow; null if it does not
say.
"""

SEEN: Final = columns("""
time_ns integer  when its last byte could be read, since 1970, by the clock of its capture point
began_ns integer  when its first byte crossed the wire, since 1970
interface short  where it was seen, counted from 0 over its file
connection integer  counted from 0 over the series, as Wireshark's tcp.stream; null for a Ping
position integer  of its first byte in what its sender sent on the connection, in bytes
missing_bytes integer  right before it, not in the capture
skipped_bytes integer  right before it, of no packet
snapped_bytes integer  of what lacks before it and in it, what frames had that the capture cut
cut_bytes integer  how much of it the capture lacks, or has behind a hole; 0 if it is whole
ahead flag  whether its sender may have had bytes of the other side that the capture has not shown before it
opened flag  whether its sender opened the connection; null where that does not begin with a SYN or the answer to one
source_address text  who sent it; in a tunnel 10.0.0.1%vxlan42
source_port short  of TCP, or of UDP for a Ping
destination_address text  whom it was sent to
destination_port short  of TCP, or of UDP for a Ping
""")

PACKETS: Final = Table(
    "A packet: where it is, and what it says by itself.",
    (
        *PLACE[:3],
        *columns("framed flag  whether it is a packet, valid or not; else bytes that begin none"),
        *PLACE[3:5],
        *columns("first_frame integer  the frame that began it, counted from 1 over its file"),
        *PLACE[5:],
        *columns("""
frame_file text  the file that ended it, and that `frame` counts in, if that is another one; else null
time time  as time_ns, rounded down
"""),
        *SEEN,
        *SAID,
    ),
)

RELATIONS: Final = Table(
    "What a packet is to its session.",
    (
        *PLACE[:2],
        *columns("""
source text  who sent it: a name by the topology, else its queue manager or address
destination text  whom it was sent to
from_key text  the queue manager that sent it: a GUID where a handshake told it, else an address
to_key text  the queue manager that it was sent to
from_client flag  whether the end that sent it is the one that asked for the session; null for a Ping
session_number short  of a UserMessage: its number on its session, where the capture tells it
session_recoverable_number short  its number among the recoverable ones
received_packets integers  the first and the last number of the packets that it newly acknowledges as received
received_count integer  how many these are
saved_packets integers  the first and the last number of those that it newly acknowledges as saved
saved_count integer  how many these are
acknowledged_by integer  the number of the packet that first says about this message that it was received
acknowledged_ns integer  when that was, since 1970
saved_by integer  the number of the packet that first says about it that it was saved
queue_name text  the queue that it goes to, by the topology, else short
"""),
    ),
)

ENDINGS: Final = Table(
    "What an OrderAck, a FinalAck or an administration acknowledgment is about.",
    (
        *PLACE[:2],
        *columns("""
ended_packets integers  the first and the last number of the packets with the messages that it is about
ended_count integer  how many these are
"""),
    ),
)

FOUND: Final = (
    *PLACE[:1],
    *columns("""
row_id integer  of the packet with which it came to light; null for what came out at the end of the series
rank integer  by which the findings of one packet are sorted
severity text  fault or note
code text  as `mqproto decode` has them
number integer  of the packet that it is about; null for none
text text  what is wrong, for people
section text  what of the specification says so
others integers  the numbers of other packets that it rests on
"""),
)
"""The columns of a finding before its place is known."""

FINDINGS: Final = Table(
    "A breach of the protocol, or what only looks odd; and a place where a capture is damaged.",
    (
        *FOUND,
        *columns("""
file text  the file of the packet that it is about
frame integer  the frame that ended that, counted from 1 over its file
file_offset integer  where its record is in the unpacked file, in bytes
"""),
    ),
)
