"""Everything that runs keep for later ones, field by field: the schema of state.py.

A record has its own name, so that its class may be moved or renamed. New and removed fields of a class must be
entered here: a new field needs a value in `DEFAULTS` for records that were kept without it. If the meaning
of kept data changes, `growth.FORM` or `checkpoint.FORM` must be raised; then kept data is not used,
and captures are read, or packets judged, again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

RECORDS: Final[Mapping[str, tuple[str, str]]] = {
    "acknowledgment": (
        "mqproto.captures.decode.facts.Acknowledgment",
        "key hop number towards identifier sequence_number positive time_ns interface connection ahead",
    ),
    "session-facts": (
        "mqproto.captures.decode.facts.SessionFacts",
        "number time_ns connection interface source destination kind missing_bytes skipped_bytes recoverable "
        "header client server refused timeouts_ms window position size_bytes ahead cut_bytes snapped_bytes opened",
    ),
    "finding": (
        "mqproto.captures.decode.findings.Finding",
        "severity code packet text section others",
    ),
    "severity": (
        "mqproto.captures.decode.findings.Severity",
        "",
    ),
    "names": (
        "mqproto.captures.decode.names.Names",
        "managers addresses hosts queues _destinations",
    ),
    "bounded-ranges": (
        "mqproto.captures.decode.ranges.BoundedRanges",
        "_first _last _limit",
    ),
    "sequence-checker": (
        "mqproto.captures.decode.sequences.checker.SequenceChecker",
        "_limit _remembered _sequences",
    ),
    "gap": (
        "mqproto.captures.decode.sequences.progress.Gap",
        "first last packet time_ns",
    ),
    "hop-progress": (
        "mqproto.captures.decode.sequences.progress.HopProgress",
        "base covered gaps passed marks",
    ),
    "high-mark": (
        "mqproto.captures.decode.sequences.progress.HighMark",
        "number packet time_ns place",
    ),
    "claim": (
        "mqproto.captures.decode.sequences.sequence.Claim",
        "ack missing message_id is_behind",
    ),
    "said": (
        "mqproto.captures.decode.sequences.sequence.Said",
        "acker own_id number packet",
    ),
    "sequence": (
        "mqproto.captures.decode.sequences.sequence.Sequence",
        "key towards ambiguous hops unknown early order_acked order_ack_packet order_ack_id order_ack_ended "
        "said passed written is_ahead claims suspicions packets",
    ),
    "session-checker": (
        "mqproto.captures.decode.sessions.checker.SessionChecker",
        "_connections",
    ),
    "session": (
        "mqproto.captures.decode.sessions.connections.Connection",
        "client server stage asked client_guid server_guid timeouts_ms request proposal told by_port",
    ),
    "connections": (
        "mqproto.captures.decode.sessions.connections.Connections",
        "_addresses _called _connections _names",
    ),
    "stage": (
        "mqproto.captures.decode.sessions.connections.Stage",
        "",
    ),
    "session-half": (
        "mqproto.captures.decode.sessions.half.Half",
        "endpoint key hop label step end sent most recoverable_sent most_recoverable adrift acknowledged "
        "stale torn unacknowledged unsaved unnumbered heard window offered over",
    ),
    "sent-packet": (
        "mqproto.captures.decode.sessions.half.Sent",
        "half packet recoverable count recoverable_count most most_recoverable acknowledged_by "
        "acknowledged_ns saved_by numbered",
    ),
    "step": (
        "mqproto.captures.decode.sessions.half.Step",
        "",
    ),
    "acknowledged": (
        "mqproto.captures.decode.sight.Acknowledged",
        "packets",
    ),
    "kind": (
        "mqproto.captures.decode.sight.Kind",
        "",
    ),
    "hole": (
        "mqproto.captures.decode.ways.Hole",
        "packet since_ns until_ns size_bytes recoverable_bytes",
    ),
    "lack": (
        "mqproto.captures.decode.ways.Lack",
        "",
    ),
    "sending": (
        "mqproto.captures.decode.ways.Sending",
        "last_ns holes snapped rest_bytes rest_came_bytes over settled",
    ),
    "silence": (
        "mqproto.captures.decode.ways.Silence",
        "over_ns last_ns sender pair place",
    ),
    "span": (
        "mqproto.captures.decode.ways.Span",
        "lack since_ns until_ns size_bytes sender came_bytes recoverable_bytes place packet",
    ),
    "ways": (
        "mqproto.captures.decode.ways.Ways",
        "began_late _began_ns _begun _into _out_of _silent_into _silent_out_of _skew_ns",
    ),
    "interface": (
        "mqproto.captures.files.frame.Interface",
        "number link_type name options",
    ),
    "clock": (
        "mqproto.captures.files.pcapng.Clock",
        "ticks_per_second offset_s",
    ),
    "section": (
        "mqproto.captures.files.pcapng.Section",
        "order sources interface_count",
    ),
    "source": (
        "mqproto.captures.files.pcapng.Source",
        "interface clock snapshot_bytes",
    ),
    "framing": (
        "mqproto.captures.framing.Framing",
        "missing_bytes position seen skipped_bytes snapped_bytes _buffer _guess _head _mark _refused "
        "_rest_bytes",
    ),
    "guess": (
        "mqproto.captures.framing.Guess",
        "began size_bytes data ended",
    ),
    "mark": (
        "mqproto.captures.framing.Mark",
        "position time_ns frame offset",
    ),
    "stream-count": (
        "mqproto.captures.framing.StreamCount",
        "stream packet_count packet_bytes cut_count cut_bytes headless_bytes refused_bytes hidden_bytes "
        "resumed_count",
    ),
    "view": (
        "mqproto.captures.net.causality.View",
        "senders _apart _count",
    ),
    "side": (
        "mqproto.captures.net.conversation.Side",
        "",
    ),
    "chunk": (
        "mqproto.captures.net.direction.Chunk",
        "time_ns data missing_bytes frame offset ahead cut_bytes",
    ),
    "early-segment": (
        "mqproto.captures.net.direction.Early",
        "position order frame needs payload cut_bytes",
    ),
    "contradiction": (
        "mqproto.captures.net.recent.Contradiction",
        "first second damaged",
    ),
    "frame": (
        "mqproto.captures.files.frame.Frame",
        "time_ns data comment missing_bytes interface number offset options",
    ),
    "ending": (
        "mqproto.captures.net.direction.Ending",
        "",
    ),
    "in-place": (
        "mqproto.captures.net.direction.InPlace",
        "start needs chunk",
    ),
    "stream": (
        "mqproto.captures.net.direction.Stream",
        "connection source destination interface from_start ending sent_bytes came_bytes data_bytes gap_count "
        "missing_bytes snapped_bytes retransmission_count conflict_count early_count keep_alive_count "
        "conflicts opposite opened",
    ),
    "ip-reader": (
        "mqproto.captures.net.ip.IpReader",
        "given_up_count _partial",
    ),
    "partial-packet": (
        "mqproto.captures.net.ip._Partial",
        "pieces whole_bytes held_bytes",
    ),
    "held": (
        "mqproto.captures.net.recent.Held",
        "total_bytes",
    ),
    "recent": (
        "mqproto.captures.net.recent.Recent",
        "_held _pieces _size_bytes",
    ),
    "sender": (
        "mqproto.captures.net.sender.Sender",
        "absent dropped_at queue queue_bytes reset_at segment_count stream _acknowledged _base _early _early_bytes "
        "_finish _held _in_place _initial _next _recent _start _taken_count",
    ),
    "waiting-chunk": (
        "mqproto.captures.net.sender.Waiting",
        "start needs chunk came other_came",
    ),
    "tcp-connection": (
        "mqproto.captures.net.streams.Connection",
        "ends number waiting _apart _held _is_opened _views",
    ),
    "tap-half": (
        "mqproto.captures.net.taps.Half",
        "interface ahead_ns",
    ),
    "segment": (
        "mqproto.captures.net.tcp.Segment",
        "source destination sequence_number acknowledgment_number flags window options payload cut_bytes",
    ),
    "endpoint": (
        "mqproto.captures.net.tcp.Endpoint",
        "host port",
    ),
    "totals": (
        "mqproto.captures.packets.Totals",
        "frames segment_frames ping_frames other_frames cut_frames untimed_frames first_ns last_ns "
        "connections msmq_streams given_up_connections packets cut_packets stream_bytes packet_bytes "
        "cut_bytes headless_bytes refused_bytes other_bytes hidden_bytes resumed_count gap_count "
        "missing_bytes snapped_bytes retransmission_count conflict_count early_count keep_alive_count "
        "given_up_fragments conflicts",
    ),
    "translation": (
        "mqproto.captures.translation.Translation",
        "number way shown initial",
    ),
    "translation-between": (
        "mqproto.captures.translation.Between",
        "hosts shown",
    ),
    "capture-file": (
        "mqproto.captures.pipeline.source.files.CaptureFile",
        "path size_bytes form packing fingerprint section start first_ns unpacked_bytes",
    ),
    "growth": (
        "mqproto.captures.pipeline.reading.growth.Growth",
        "files frames_before last_ns range_count frames rows framed totals waiting halves translations "
        "crossings",
    ),
    "past": (
        "mqproto.captures.pipeline.stages.tasks.checkpoint.Past",
        "learners first_hops losses ways places clock_pairs codes",
    ),
    "open-pair": (
        "mqproto.captures.pipeline.reading.packets.flows.OpenPair",
        "ends connection framings last_number last_ns",
    ),
    "directory": (
        "mqproto.captures.pipeline.stages.sessions.directory.Directory",
        "by_series",
    ),
    "first-hop": (
        "mqproto.captures.pipeline.stages.sessions.directory.FirstHop",
        "series address port manager",
    ),
    "introduction": (
        "mqproto.captures.pipeline.stages.sessions.directory.Introduction",
        "number client client_guid server server_guid",
    ),
    "learners": (
        "mqproto.captures.pipeline.stages.sessions.directory.Learners",
        "_learners",
    ),
    "remembered": (
        "mqproto.captures.pipeline.stages.sessions.directory.Remembered",
        "conflict hosts introductions listening _before _ends _ends_before _next _told",
    ),
    "learner": (
        "mqproto.captures.pipeline.stages.sessions.directory._Learner",
        "checker conflict hosts introductions listening number _before _ends _ends_before _told",
    ),
    "outcome": (
        "mqproto.captures.pipeline.stages.messages.histories.Outcome",
        "",
    ),
    "hop-count": (
        "mqproto.captures.pipeline.stages.sequences.sequence_counts.HopCount",
        "first_ns last_ns received resends gaps",
    ),
    "order-row": (
        "mqproto.captures.pipeline.stages.sequences.sequence_counts.OrderRow",
        "acker number at_source row",
    ),
    "sequence-count": (
        "mqproto.captures.pipeline.stages.sequences.sequence_counts.SequenceCount",
        "sequence place first_ns queue last_ns order_acks positive negative last_final order_rows "
        "final_number final_row unseen returning doubtful proved hops",
    ),
    "unconfirmed": (
        "mqproto.captures.pipeline.stages.sequences.sequence_counts.Unconfirmed",
        "_highest _numbers _values",
    ),
    "sequence-stage": (
        "mqproto.captures.pipeline.stages.sequences.sequences.SequenceStage",
        "_checkers _confirmed _counts _losses _out",
    ),
    "session-stage": (
        "mqproto.captures.pipeline.stages.sessions.sessions.SessionStage",
        "_directory _names _out _series _steady _waiting_count",
    ),
    "session-count": (
        "mqproto.captures.pipeline.stages.sessions.sessions._Count",
        "packets size_bytes messages session_acks missing_bytes sending ending waiting",
    ),
    "session-series": (
        "mqproto.captures.pipeline.stages.sessions.sessions._Series",
        "addresses checker connections sessions",
    ),
    "session-row": (
        "mqproto.captures.pipeline.stages.sessions.sessions._Session",
        "connection number interface place first_ns begun last_ns newest_ns skew_ns opened_ns reached client "
        "server severities",
    ),
    "wire-format-error": (
        "mqproto.base.errors.WireFormatError",
        "field offset value limit section",
    ),
    "packet-buffer": (
        "mqproto.wire.buffer.PacketBuffer",
        "fault _kept _needed _rest",
    ),
    "message-class": (
        "mqproto.wire.classes.MessageClass",
        "",
    ),
    "session-header": (
        "mqproto.wire.layouts.session.SessionHeader",
        "ack_sequence_number recoverable_msg_ack_seq_number recoverable_msg_ack_flags "
        "user_msg_sequence_number recoverable_msg_seq_number window_size reserved",
    ),
    "tx-sequence-id": (
        "mqproto.wire.layouts.transaction.TxSequenceId",
        "time_stamp ordinal",
    ),
}
"""By the name of a record: its class, and its fields in order."""
DEFAULTS: Final[Mapping[tuple[str, str], Callable[[], Any]]] = {
    ("hop-progress", "marks"): deque,
    ("sequence-count", "proved"): lambda: deque(maxlen=1_024),
    ("sending", "holes"): list,
    ("sending", "over"): lambda: False,
    ("sending", "settled"): lambda: 0,
    ("ways", "_begun"): lambda: defaultdict(list),
    ("ways", "_silent_into"): lambda: defaultdict(list),
    ("ways", "_silent_out_of"): lambda: defaultdict(list),
    ("acknowledgment", "ahead"): lambda: False,
    ("session", "told"): lambda: True,
    ("session", "by_port"): lambda: False,
    ("session-facts", "opened"): lambda: None,
}
"""By record and field: its value in records that were kept without it."""
