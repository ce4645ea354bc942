"""Values that nodes may report: a sequence, a queue, a gap, a message. Each test changes the fields that it is
about.
"""

from __future__ import annotations

from mqproto.manager.status import IncomingStatus, LocalStatus, OutgoingStatus
from mqproto.manager.whereabouts import MessageStatus, Spot
from mqproto.simulator.topology import load
from mqproto.wire import guid_text

THREE = load("three-node")
SENDER, INTERMEDIATE, DESTINATION = THREE.nodes.values()
ORDERS = str(DESTINATION.format_name(DESTINATION.queue("orders")))
NOW_MS, NOW_S = 1_000_000, 1_700_000_000

SEQUENCE = OutgoingStatus(
    name=ORDERS,
    sequence=True,
    waiting=3,
    next_hop="127.0.0.2:1801",
    state="connected",
    last_failure="",
    last_ack=0,
    resent=0,
    resend_at_ms=NOW_MS + 18_000,
    next_manager=guid_text(INTERMEDIATE.guid),
    resend_interval_ms=30_000,
    resend_attempt=1,
    first_unacked=1,
    last_unacked=3,
    unacked=3,
    next_number=4,
)
EXPRESS = OutgoingStatus(
    name=guid_text(DESTINATION.guid),
    sequence=False,
    waiting=2,
    next_hop="127.0.0.2:1801",
    state="disconnected",
    last_failure="connection refused by 127.0.0.2:1801",
    last_ack=0,
    resent=0,
    resend_at_ms=None,
    retry_at_ms=NOW_MS + 4_000,
    next_manager=guid_text(INTERMEDIATE.guid),
    unsent=2,
)
QUEUE = LocalStatus("orders", True, 2, 0, 0, size_bytes=100)
HELD = IncomingStatus("orders", ORDERS, guid_text(SENDER.guid), 2, (50, 1), 4, NOW_S - 5, 4, 400, (3, 3))
MESSAGE = MessageStatus(
    spot=Spot.AWAITING_ORDER_ACK,
    queue=ORDERS,
    source=guid_text(SENDER.guid),
    ordinal=7,
    destination=ORDERS,
    label="order 7",
    body_bytes=5,
    priority=0,
    transactional=True,
    number=1,
    message_class=0,
    sent_s=NOW_S - 12,
    reach_by_s=None,
    receive_by_s=None,
)
