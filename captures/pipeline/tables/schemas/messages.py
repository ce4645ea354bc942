"""The tables of messages and of transactional sequences.  [MS-MQQB] 3.1.1.5"""

from __future__ import annotations

from typing import Final

from mqproto.captures.pipeline.tables.schemas.columns import Table, columns
from mqproto.captures.pipeline.tables.schemas.packets import PLACE
from mqproto.captures.pipeline.tables.schemas.sessions import BEGUN

SEQUENCES: Final = Table(
    "A transactional sequence, by its first packet.",
    (
        *BEGUN,
        *columns("""
source_manager text  the queue manager that its messages come from, a GUID
destination_manager text  the queue manager that they go to
queue text  the format name of the queue that they go to
sequence text  its TxSequenceID
first_ns integer  its first packet, since 1970
last_ns integer  its last packet, since 1970
first_number integer  the least of its numbers that were seen
last_number integer  the largest
messages integer  how many different numbers crossed at least one hop
order_acks integer  how many OrderAcks there were, each counted once
order_acked integer  the highest number that they covered
final_acks_positive integer  how many messages had a FinalAck, and the first was MQMSG_CLASS_ACK_RECEIVE
final_acks_negative integer  those whose first was of another class
one_queue flag  false where one identifier served two queues, so that nothing is judged
"""),
    ),
)

_OF_SEQUENCE: Final = columns("""
series text  the capture that it is from
source_manager text  the queue manager that the messages of the sequence come from, a GUID
sequence text  the TxSequenceID
from_key text  the queue manager at one end of the hop: a GUID where a handshake told it, else an address
to_key text  the one at the other end
""")

SEQUENCE_HOPS: Final = Table(
    "What of a sequence crossed one hop, as one interface saw it.",
    (
        *_OF_SEQUENCE,
        *columns("""
interface short  counted from 0 over its file
first_ns integer  its first packet there, since 1970
last_ns integer  its last packet there, since 1970
first_number integer  the least number that crossed
last_number integer  the largest
messages integer  how many different numbers crossed
resends integer  how often one crossed again
gaps integer  how often numbers did not cross before later ones
gaps_open integer  of these, where some lack still
"""),
    ),
)

GAPS: Final = Table(
    "Numbers that were not seen on a hop before later ones; a destination holds what came behind them. "
    "The captures lack nothing of the connection before its packet `opened_by`: where they do, no gap is told about.",
    (
        *_OF_SEQUENCE,
        *columns("""
first_number integer  the first that was missing
last_number integer  the last
opened_by integer  the number of the packet that came before them
opened_ns integer  when, since 1970
filled_by integer  the number of the packet with which all had come; null while some lack
filled_ns integer  when, since 1970
"""),
    ),
)

ORDER_ACKS: Final = Table(
    "An OrderAck on one hop, [MS-MQQB] 2.2.4.1.",
    (
        *PLACE[:3],
        *columns("""
time_ns integer  when it was seen, since 1970
source_manager text  the queue manager that the messages come from, a GUID
sequence text  the TxSequenceID
sequence_number integer  up to which number messages have come
acker text  the queue manager that made it
from_key text  the queue manager that sent it on this hop
to_key text  the queue manager that it was sent to
covered integer  how many messages it newly covers; told on the first hop where it is seen
delay_ns integer  from when the last of these first came to its destination; null where the capture lacks that
at_source flag  whether this hop ends where the messages come from
"""),
    ),
)

HOPS: Final = Table(
    "A message of an application on one hop. Times are by the reference clock; the place is its first packet's.",
    (
        *columns("""
message text  its queue manager and its number
position short  1 for the first hop, by hop count and time
from_key text  the queue manager that it left: a GUID where a handshake told it, else an address
to_key text  the queue manager that it came to
from_label text  the same, by the topology where that has a name
to_label text  the same for the other one
first_ns integer  when it first crossed, since 1970
last_ns integer  when it last crossed, since 1970
waited_ns integer  since it had first come to the queue manager that it leaves by this hop; null of the first hop
waited_uncertainty_ns integer  how uncertain the clocks make that: 0 where one point saw both, null where nobody knows
acknowledged_ns integer  when its receiver first answered for it, since 1970
numbered flag  whether its number on its session was known each time, so that an answer to it would be known for one
hop_count short  as the packet has it
copies integer  how often it crossed, as the capture point that saw most has it
places short  how many capture points saw it
"""),
        *PLACE,
    ),
)

HISTORIES: Final = Table(
    "What became of a message of an application. Times are by the reference clock; the place is its first packet's.",
    (
        *columns("""
message text  its queue manager and its number
source_manager text  the first of these, a GUID
destination_manager text  the queue manager that it is addressed to
queue text  the format name of its destination
delivery text  express, recoverable or transactional
sequence text  of a transactional one: its TxSequenceID
sequence_number integer  its number there
label text  what its sender calls it
body_bytes integer  of its body
sent_time_s integer  when it was sent, since 1970, by the clock of its queue manager
first_ns integer  when it was first seen, since 1970
last_ns integer  when it was last seen, since 1970
route texts  the queue managers that it crossed, from the first one seen
hops short  how many hops it crossed
hop_ns integers  when it first crossed each, since 1970
resends integer  copies beyond the first, over all hops
arrived_ns integer  when it first crossed to its destination, since 1970
latency_ns integer  how long after it was first seen that was
latency_uncertainty_ns integer  how uncertain the clocks make that: 0 where one point saw both, null where nobody knows
order_acked_ns integer  when an OrderAck for it was first seen, since 1970, at its source if captures show that
order_ack_at_source flag  whether they do
covered_ns integer  when the positive FinalAck of a later message of its sequence was seen, which says that this one
    came too, since 1970
final_class text  of the first FinalAck for it
final_ns integer  when that was seen, since 1970
administration texts  the classes of administration acknowledgments for it
administration_ns integers  when each was seen, since 1970
outcome text  one of mqproto.captures.pipeline.stages.messages.histories.Outcome
reason text  why it is not known whether it came, or whether it was acknowledged; else null
whereabouts text  the queue manager that has it, or the hop that it is on; where it was last seen, if that is not known
complete flag  false of a message with more packets than are looked at
"""),
        *PLACE,
    ),
)

DUPLICATES: Final = Table(
    "An arrival of a message at a queue manager: new, a duplicate, or in doubt.",
    (
        *columns("""
message text  its queue manager and its number
to_key text  the queue manager that it came to: a GUID where a handshake told it, else an address
"""),
        *PLACE,
        *columns("""
time_ns integer  when it came, since 1970, by the reference clock
delivery_count integer  1 for the first; null where the capture lacks some, so that nobody can say
verdict text  new, duplicate, or in doubt
reason text  why it is in doubt, or not new
"""),
    ),
)

ARRIVALS: Final = Table(
    "What is remembered of arrivals from run to run; of several rows that with the most arrivals holds.",
    columns("""
message text  its queue manager and its number
to_key text  the queue manager that it came to
arrivals integer  how often it came
digest integer  of its last packet, as packets have it
first_ns integer  when it first came, since 1970
last_ns integer  when it last came, since 1970
completed_ns integer  when the queue manager first answered for it, since 1970
"""),
)
