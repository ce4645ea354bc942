"""Everything that runs keep for later runs, class by class: the schema of state.py.

A record has its own name, so that its class may be moved or renamed. A new field of a class needs a value in
`DEFAULTS`, for records that were kept without it. If the meaning of kept data changes, `growth.FORM` or
`checkpoint.FORM` must be raised. Kept data is then not used: captures are read again, or packets are judged again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from mqproto.captures.decode.ranges import BoundedRanges

RECORDS: Final[Mapping[str, str]] = {
    "acknowledgment": "mqproto.captures.decode.facts.Acknowledgment",
    "session-facts": "mqproto.captures.decode.facts.SessionFacts",
    "finding": "mqproto.captures.decode.findings.Finding",
    "severity": "mqproto.captures.decode.findings.Severity",
    "names": "mqproto.captures.decode.names.Names",
    "bounded-ranges": "mqproto.captures.decode.ranges.BoundedRanges: _first _last _limit",
    "sequence-checker": (
        "mqproto.captures.decode.sequences.checker.SequenceChecker: _limit _remembered _sequences"
    ),
    "gap": "mqproto.captures.decode.sequences.progress.Gap",
    "hop-progress": "mqproto.captures.decode.sequences.progress.HopProgress",
    "high-mark": "mqproto.captures.decode.sequences.progress.HighMark",
    "claim": "mqproto.captures.decode.sequences.sequence.Claim",
    "said": "mqproto.captures.decode.sequences.sequence.Said",
    "sequence": "mqproto.captures.decode.sequences.sequence.Sequence",
    "session-checker": "mqproto.captures.decode.sessions.checker.SessionChecker: _connections",
    "session": "mqproto.captures.decode.sessions.connections.Connection",
    "connections": (
        "mqproto.captures.decode.sessions.connections.Connections: _addresses _called _connections _names"
    ),
    "stage": "mqproto.captures.decode.sessions.connections.Stage",
    "session-half": "mqproto.captures.decode.sessions.half.Half",
    "sent-packet": "mqproto.captures.decode.sessions.half.Sent",
    "step": "mqproto.captures.decode.sessions.half.Step",
    "acknowledged": "mqproto.captures.decode.sight.Acknowledged",
    "kind": "mqproto.captures.decode.sight.Kind",
    "hole": "mqproto.captures.decode.ways.Hole",
    "lack": "mqproto.captures.decode.ways.Lack",
    "sending": "mqproto.captures.decode.ways.Sending",
    "silence": "mqproto.captures.decode.ways.Silence",
    "span": "mqproto.captures.decode.ways.Span",
    "ways": (
        "mqproto.captures.decode.ways.Ways: "
        "began_late _began_ns _begun _into _out_of _silent_into _silent_out_of _skew_ns"
    ),
    "interface": "mqproto.captures.files.frame.Interface",
    "clock": "mqproto.captures.files.pcapng.Clock",
    "section": "mqproto.captures.files.pcapng.Section",
    "source": "mqproto.captures.files.pcapng.Source",
    "framing": (
        "mqproto.captures.framing.Framing: "
        "missing_bytes position seen skipped_bytes snapped_bytes _buffer _guess _head _mark _refused"
        " _rest_bytes"
    ),
    "guess": "mqproto.captures.framing.Guess",
    "mark": "mqproto.captures.framing.Mark",
    "stream-count": "mqproto.captures.framing.StreamCount",
    "view": "mqproto.captures.net.causality.View: senders _apart _count",
    "side": "mqproto.captures.net.conversation.Side",
    "chunk": "mqproto.captures.net.direction.Chunk",
    "early-segment": "mqproto.captures.net.direction.Early",
    "contradiction": "mqproto.captures.net.recent.Contradiction",
    "frame": "mqproto.captures.files.frame.Frame",
    "ending": "mqproto.captures.net.direction.Ending",
    "in-place": "mqproto.captures.net.direction.InPlace",
    "stream": "mqproto.captures.net.direction.Stream",
    "ip-reader": "mqproto.captures.net.ip.IpReader: given_up_count _partial",
    "partial-packet": "mqproto.captures.net.ip._Partial",
    "held": "mqproto.captures.net.recent.Held",
    "recent": "mqproto.captures.net.recent.Recent: _held _pieces _size_bytes",
    "sender": (
        "mqproto.captures.net.sender.Sender: "
        "absent dropped_at queue queue_bytes reset_at segment_count stream _acknowledged _base _early"
        " _early_bytes _finish _held _in_place _initial _next _recent _start _taken_count"
    ),
    "waiting-chunk": "mqproto.captures.net.sender.Waiting",
    "tcp-connection": (
        "mqproto.captures.net.streams.Connection: ends number waiting _apart _held _is_opened _views"
    ),
    "tap-half": "mqproto.captures.net.taps.Half",
    "segment": "mqproto.captures.net.tcp.Segment",
    "endpoint": "mqproto.captures.net.tcp.Endpoint",
    "totals": "mqproto.captures.packets.Totals",
    "translation": "mqproto.captures.translation.Translation",
    "translation-between": "mqproto.captures.translation.Between",
    "capture-file": "mqproto.captures.pipeline.source.files.CaptureFile",
    "growth": "mqproto.captures.pipeline.reading.growth.Growth",
    "past": "mqproto.captures.pipeline.stages.tasks.checkpoint.Past",
    "open-pair": "mqproto.captures.pipeline.reading.packets.flows.OpenPair",
    "directory": "mqproto.captures.pipeline.stages.sessions.directory.Directory",
    "first-hop": "mqproto.captures.pipeline.stages.sessions.directory.FirstHop",
    "introduction": "mqproto.captures.pipeline.stages.sessions.directory.Introduction",
    "learners": "mqproto.captures.pipeline.stages.sessions.directory.Learners: _learners",
    "remembered": (
        "mqproto.captures.pipeline.stages.sessions.directory.Remembered: "
        "conflict hosts introductions listening _before _ends _ends_before _next _told"
    ),
    "learner": (
        "mqproto.captures.pipeline.stages.sessions.directory._Learner: "
        "checker conflict hosts introductions listening number _before _ends _ends_before _told"
    ),
    "outcome": "mqproto.captures.pipeline.stages.messages.histories.Outcome",
    "hop-count": "mqproto.captures.pipeline.stages.sequences.sequence_counts.HopCount",
    "order-row": "mqproto.captures.pipeline.stages.sequences.sequence_counts.OrderRow",
    "sequence-count": "mqproto.captures.pipeline.stages.sequences.sequence_counts.SequenceCount",
    "unconfirmed": (
        "mqproto.captures.pipeline.stages.sequences.sequence_counts.Unconfirmed: _highest _numbers _values"
    ),
    "sequence-stage": (
        "mqproto.captures.pipeline.stages.sequences.sequences.SequenceStage: "
        "_checkers _confirmed _counts _losses _out"
    ),
    "session-stage": (
        "mqproto.captures.pipeline.stages.sessions.sessions.SessionStage: "
        "_directory _names _out _series _steady _waiting_count"
    ),
    "session-count": "mqproto.captures.pipeline.stages.sessions.sessions._Count",
    "session-series": (
        "mqproto.captures.pipeline.stages.sessions.sessions._Series: addresses checker connections sessions"
    ),
    "session-row": "mqproto.captures.pipeline.stages.sessions.sessions._Session",
    "wire-format-error": "mqproto.base.errors.WireFormatError: field offset value limit section",
    "packet-buffer": "mqproto.wire.buffer.PacketBuffer",
    "message-class": "mqproto.wire.classes.MessageClass",
    "session-header": "mqproto.wire.layouts.session.SessionHeader",
    "tx-sequence-id": "mqproto.wire.layouts.transaction.TxSequenceId",
}
"""Maps the name of each record to its class, and to its fields if the class does not declare them."""
DEFAULTS: Final[Mapping[tuple[str, str], Callable[[], Any]]] = {
    ("hop-progress", "marks"): deque,
    ("sequence", "early_finals"): dict,
    ("sequence-count", "finals"): dict,
    ("sequence-count", "seen"): BoundedRanges,
    ("sequence-count", "ended"): BoundedRanges,
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
"""Maps a record and a field to the value for records that were kept without that field."""
