"""The places where the specification can be read in two ways, and how this peer reads them.

Each switch is off if the peer reads the text as mqproto does, and on if the peer reads it the other way. `reading` is
the number of the question in mqproto/conformance.toml. It is 0 for a switch whose behavior does not depend on a
reading; mqproto may encounter such behavior in a peer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple


class Question(NamedTuple):
    """The question behind a switch: the number of the reading, its section, and what the peer does if the switch
    is on.
    """

    name: str
    reading: int
    section: str
    otherwise: str
    of_keys: bool
    """Whether the switch affects only encryption and signatures."""


def switch(reading: int, section: str, otherwise: str, of_keys: bool = False) -> Any:
    """Return one field of `Switches`, off by default; sections that name no document are those of [MS-MQQB]."""
    told = {"reading": reading, "section": section, "otherwise": otherwise, "of_keys": of_keys}
    return field(default=False, metadata=told)


def of_keys(reading: int, section: str, otherwise: str) -> Any:
    """Return a switch that affects only encryption and signatures."""
    return switch(reading, section, otherwise, of_keys=True)


@dataclass(frozen=True, slots=True)
class Switches:
    """All switches: those for readings, in the order of the readings, and then those that are not about readings."""

    session_ack_size_short: bool = switch(
        1, "[MS-MQMQ] 2.2.19.1", "PacketSize of a SessionAck is 20: a SessionHeader is never counted"
    )
    message_size_long: bool = switch(1, "4.1.8", "PacketSize of a UserMessage counts its SessionHeader")
    order_ack_number_in_id: bool = switch(
        2, "3.1.1.6.2", "TxSequenceID of an OrderAck is the number acknowledged"
    )
    order_ack_own_sequence: bool = switch(
        3, "3.1.7.17", "TxSequenceID of an OrderAck is our OutgoingTxSequenceID"
    )
    order_ack_to_neighbour: bool = switch(4, "3.1.7.17", "OrderAck and FinalAck go to RemoteQMGuid")
    order_ack_by_direct_name: bool = switch(
        4, "3.1.7.17", r"OrderAck and FinalAck of direct names go to DIRECT=TCP:address\PRIVATE$\order_queue$"
    )
    rejected_advances: bool = switch(
        5, "3.1.5.8.6", "a message that is not accepted advances the incoming sequence"
    )
    ping_not_on_retry: bool = switch(
        6, "3.1.5.2.2", "with ping_required: attempts that the retry timer starts have no Ping"
    )
    ping_required: bool = switch(
        7, "3.1.5.2.2", "we ask by Ping before we connect, and stay away without an answer"
    )
    ping_latest_cookie: bool = switch(
        8, "3.1.7.8", "a Ping Response has to carry the cookie of the last request of all"
    )
    ping_any_port: bool = switch(9, "2.1.2", "a Ping is answered also if it comes from the ping port")
    refuse_null_server: bool = switch(10, "2.2.1", "a connection request with a zero ServerGuid is refused")
    duplicate_by_ordinal: bool = switch(
        11, "3.1.5.8.1", "a duplicate is known by its ordinal, whoever sent it"
    )
    history_half_hour: bool = switch(
        12, "3.1.6.7", "each entry of MessageIDHistoryTable goes after 30 minutes"
    )
    message_ids_from_zero: bool = switch(13, "3.1.1.3", "MessageIDs begin at 0")
    duplicate_uncounted: bool = switch(16, "3.1.5.8.1", "a duplicate is dropped before it is counted")
    acks_at_33rd: bool = switch(
        17, "3.1.5.8.7", "session acknowledgments at the 33rd message or after half a second"
    )
    own_window: bool = switch(18, "3.1.7.1", "our own WindowSize alone bounds what we send")
    stale_acks: bool = switch(
        19, "3.1.5.5.1", "each SessionAck is followed by one with the AckSequenceNumber before"
    )
    interval_grows_with_ack: bool = switch(
        21, "3.1.5.6", "the resend interval grows with each OrderAck, not time-out"
    )
    resend_all: bool = switch(22, "3.1.6.5", "a time-out resends all that is not acknowledged at once")
    resend_at_open: bool = switch(23, "3.1.3.2", "all without an OrderAck is sent again when a session opens")
    order_ack_recoverable: bool = switch(24, "3.1.7.17", "an OrderAck is recoverable")
    order_ack_priority: bool = switch(
        25, "[MS-MQMQ] 2.2.19.1", "OrderAck and FinalAck have the default priority, 3"
    )
    numbered_when_sent: bool = switch(
        26, "3.1.7.1.3", "a transactional message is numbered when it is first sent"
    )
    sequence_per_neighbour: bool = switch(
        27, "3.1.1.5", "one outgoing sequence for all queues of a neighbour"
    )
    no_data_without_ai: bool = switch(
        28, "[MS-MQMQ] 2.2.20.6", "AI is clear and SecurityData is absent, whatever the sizes"
    )
    long_lists: bool = switch(30, "[MS-MQMQ] 2.2.20.2", "a list may have more than 4,096 queues")
    list_size_unpadded: bool = switch(
        31, "[MS-MQMQ] 2.2.20.2", "HeaderSize of MQFAddressHeader leaves out its padding"
    )
    guids_reversed: bool = switch(33, "4.1", "GUIDs are reversed from end to end, as the prose prints them")
    timer_between_addresses: bool = switch(
        37, "3.1.6.1", "the retry timer runs between two addresses of a host"
    )
    retry_without_hop: bool = switch(
        41, "3.1.5.2.1", "a queue without a next hop asks again by the retry timer"
    )
    session_header_late: bool = switch(
        43, "3.1.7.11", "a SessionHeader rides only when 75 percent of the timer are over"
    )
    flags_absent: bool = switch(44, "3.1.5.5.3", "RecoverableMsgAckSeqNumber alone says what is on disk")
    pause_acknowledges: bool = switch(
        45, "3.1.7.13", "the SessionAck of a pause acknowledges all that has come"
    )
    sent_expires: bool = switch(
        46, "3.1.7.1.2", "a transactional message that was sent expires at its sender"
    )
    life_counts_on_arrival: bool = switch(50, "3.1.7.1.2", "TimeToBeReceived does not count on the way")
    transactional_stays: bool = switch(
        51, "[MS-MQDMPR] 3.1.7.2.7", "a transactional message never expires in its queue"
    )
    refused_holds: bool = switch(
        54, "3.1.5.8.2", "a message that is refused does not advance the incoming sequence"
    )
    final_ack_few_classes: bool = switch(
        55, "2.2.5", "a FinalAck is of one of the classes of 2.2.5, else there is none"
    )
    nr_tells_unreached: bool = switch(
        66, "[MS-MQMQ] 2.2.19.3", "NR asks to be told about what never reached its queue"
    )
    direct_arrival_untold: bool = switch(67, "3.1.5.8.10", "the arrival by a direct name is not acknowledged")
    admin_ack_bare: bool = switch(
        68, "3.1.7.15", "an administration acknowledgment has no label, tag or priority"
    )
    full_refuses_acks: bool = switch(
        69, "3.1.5.8.8", "a full queue manager closes the session at OrderAcks too"
    )
    priority_over_all: bool = switch(
        70, "[MS-MQDMPR] 3.1.7.3.9", "the highest priority of all destinations goes first"
    )
    deleted_is_purged: bool = switch(
        71, "[MS-MQDMPR] 3.1.7.1.7", "what an operator deletes ends as NACK_Q_PURGED"
    )
    sequence_outlives_process: bool = switch(
        73, "3.1.5.6", "a new process goes on with the sequence of the last one"
    )
    no_order_ack_of_none: bool = switch(
        77, "2.2.4.1", "no OrderAck where nothing was accepted: its range begins at 1"
    )
    believe_any_guid: bool = switch(
        78, "3.1.5.3.1", "a queue manager is who it says it is, wherever it calls from"
    )
    take_from_anybody: bool = switch(
        81, "3.1.5.8", "a neighbour may bring messages of any SourceQueueManager"
    )
    simple_blob_256: bool = of_keys(
        84, "2.4.2", "encryptedKey has 256 bytes, of which those behind a shorter block are zeros"
    )
    rc2_ecb: bool = of_keys(86, "3.1.5.8.3", "RC2 encrypts each block by itself: CBC is said about AES alone")
    rc2_40_of_128: bool = of_keys(
        86, "3.1.7.1.5", "RC2 has 40 effective bits, also with a key of 128, as Windows 2000 had it"
    )
    salted_40_bit_keys: bool = of_keys(
        87, "3.1.7.1.5", "11 bytes of zeros follow a key of 40 bits, as the CryptoAPI's default is"
    )
    rc4_goes_on: bool = of_keys(88, "3.1.7.1.5", "RC4 goes on over all bodies of a session key")
    key_in_block_reversed: bool = of_keys(
        89, "2.4.2", "the session key is little-endian as well before it is encrypted"
    )
    bad_key_told: bool = of_keys(
        90, "3.1.5.8.3", "an encryptedKey that is encrypted in a wrong way is refused as that"
    )
    signature_big_endian: bool = of_keys(
        91, "3.1.7.1.4", "the first byte of a signature is the most significant one, as RFC 8017 has it"
    )
    signature_without_oid: bool = of_keys(
        91, "3.1.7.1.4", "the hash is encrypted without its name, as by CRYPT_NOHASHOID"
    )
    md2_and_md4_taken: bool = of_keys(92, "[MS-MQMQ] 2.2.19.3", "signatures with MD2 and MD4 are taken")
    label_without_nul: bool = of_keys(93, "[MS-MQMQ] 2.5", "Label is hashed without the null at its end")
    names_with_padding: bool = of_keys(
        93, "[MS-MQMQ] 2.5", "names of queues are hashed with the padding behind them"
    )
    list_without_padding: bool = of_keys(
        93, "[MS-MQMQ] 2.5.3", "FormatNameList is hashed without the padding between its elements"
    )
    signs_ciphertext: bool = of_keys(
        94,
        "3.1.5.8.3",
        "a body is hashed as it is sent, so encrypted, and authenticated before it is decrypted",
    )
    sig30_in_security_header: bool = of_keys(
        95, "[MS-MQMQ] 2.2.20.6", "all signatures are those of MSMQ 3.0, as it and later versions have it"
    )
    sid_is_verified: bool = of_keys(
        97, "3.1.5.8.3", "a SID is believed of nobody without a certificate, also if nothing is signed"
    )

    ordinals_interleave: bool = switch(
        0, "note 35", "all sequences share one TimeStamp and count one Ordinal"
    )
    previous_from_table: bool = switch(
        0,
        "3.1.7.1.3",
        "PreviousTxSequenceNumber of a resend is the message before it that is still kept, or 0",
    )
    flags_late: bool = switch(
        0, "3.1.6.4", "RecoverableMsgAckFlags come half a second after AckSequenceNumber"
    )
    flags_sparse: bool = switch(
        0, "[MS-MQMQ] 2.2.20.4", "RecoverableMsgAckFlags say every other message first"
    )
    window_zero: bool = switch(0, "2.2.2.1", "ConnectionParameters announce a WindowSize of 0")
    other_case: bool = switch(0, "[MS-MQMQ] 2.1", "every other message spells its queue in another case")
    reserved_bits: bool = switch(0, "[MS-MQMQ] 2.2.19.1", "all reserved bits of all headers are set")
    junk: bool = switch(0, "notes 17, 19", "fields that may be left uninitialised hold arbitrary bytes")
    provider_info_always: bool = of_keys(
        0, "3.1.7.1.5", "ProviderInfo names the provider, and DE is clear, whichever it is"
    )


QUESTIONS = tuple(Question(f.name, **f.metadata) for f in fields(Switches))
