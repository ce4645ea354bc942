"""The handshake that opens a session.  3.1.5.2.3, 3.1.5.3, 3.1.5.4"""

from __future__ import annotations

from typing import Final

from mqproto.base.configuration import RECOVERABLE_ACK_TIMEOUT_RANGE_MS
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer
from mqproto.session.data import ConnectionStatus, SessionData, SessionState
from mqproto.wire import NULL_GUID, ConnectionParameters, EstablishConnection, establish_connection, guid_text

OURSELVES: Final = "it is this node by another address, or a copy of it, which needs a new identity"
ANSWERED: Final = 0x5A
"""BaseHeader.Reserved in an answer. Receivers ignore it ([MS-MQMQ] 2.2.19.1).

The specification's example of an answer has this value (4.1.4), Windows sends it, and scanners recognize queue managers
by it.
"""


def request_connection(data: SessionData, now: Moment) -> None:
    """Send our identity and that of the queue manager we want, now that the transport is open.  3.1.5.2.3"""
    data.send(
        establish_connection(
            client=data.local_qm,
            server=data.remote_qm or NULL_GUID,
            time_stamp_ms=now.uptime_ms % 2**32,
            ping=data.settings.require_pings,
        )
    )
    data.state = SessionState.WAITING_ECR_MSG
    start_initialization_timer(data, now)


def answer_connection(data: SessionData, packet: EstablishConnection, now: Moment) -> None:
    """Grant a session that a neighbour asks for, or refuse it and close.  3.1.5.3.1

    The GUID that the neighbour presents is a claim; `admit` decides whether to believe it. A zero ServerGuid is
    accepted, because it is sent for a direct format name; by 2.2.1 it would be refused. The bit OS tells the
    initiator's system (2.2.3.1), so the answer repeats it.
    """
    data.remote_qm = packet.client_guid
    refusal = None
    if packet.server_guid not in (data.local_qm, NULL_GUID):
        refusal = (
            f"it asks for queue manager {guid_text(packet.server_guid)}, we are {guid_text(data.local_qm)}"
        )
    elif packet.client_guid == data.local_qm:
        refusal = f"it presents our own GUID {guid_text(data.local_qm)}: {OURSELVES}"
    elif packet.client_guid == NULL_GUID:
        refusal = "it presents the null GUID"
    else:
        refusal = data.admit(data, packet.client_guid, now)
    answer = establish_connection(
        client=packet.client_guid,
        server=data.local_qm,
        time_stamp_ms=packet.time_stamp_ms,
        refused=refusal is not None,
        ping=not packet.no_ping,
        server_class=packet.server_class,
    )
    answer.base.reserved = ANSWERED
    data.send(answer)
    if refusal is not None:
        data.close("3.1.5.3.1", refusal)
        return
    data.state = SessionState.WAITING_CP_MSG
    start_initialization_timer(data, now)


def confirm_connection(data: SessionData, packet: EstablishConnection, now: Moment) -> None:
    """Propose parameters after the acceptor's answer, or close.  3.1.5.3.2"""
    expected = data.remote_qm or packet.server_guid
    fault = None
    if packet.server_guid == data.local_qm:
        fault = f"the acceptor presents our own GUID {guid_text(data.local_qm)}: {OURSELVES}"
    elif packet.refused and packet.server_guid != expected:
        fault = (
            f"the acceptor refused the connection: we asked for queue manager {guid_text(expected)}, "
            f"it is {guid_text(packet.server_guid)}"
        )
    elif packet.refused:
        fault = (
            "the acceptor refused the connection: it may have met our GUID at another address (there: mqproto peers), "
            "or take no more sessions"
        )
    elif (packet.client_guid, packet.server_guid) != (data.local_qm, expected):
        fault = (
            f"the answer is from queue manager {guid_text(packet.server_guid)} to {guid_text(packet.client_guid)}, "
            f"expected {guid_text(expected)} to {guid_text(data.local_qm)}"
        )
    elif packet.server_guid == NULL_GUID:
        fault = "the acceptor presents the null GUID"
    else:
        fault = data.admit(data, packet.server_guid, now)
    if packet.refused:
        data.status = ConnectionStatus.CONNECTION_REFUSED
    if fault is not None:
        data.close("3.1.5.3.2", fault)
        return
    data.remote_qm = packet.server_guid

    # Eight round trips, within the limits of 2.2.2.1. TimeStamp is 32 bits wide and wraps.
    round_trip_ms = (now.uptime_ms - packet.time_stamp_ms) % 2**32
    low, high = RECOVERABLE_ACK_TIMEOUT_RANGE_MS
    data.recoverable_ack_send_timeout_ms = min(max(8 * round_trip_ms, low), high)
    data.ack_wait_timeout_ms = data.settings.ack_wait_timeout_ms
    data.send(proposed_parameters(data))
    data.state = SessionState.WAITING_CPR_MSG
    data.status = ConnectionStatus.ESTABLISH_PACKET_RECEIVED


def accept_parameters(data: SessionData, packet: ConnectionParameters, now: Moment) -> None:
    """Take the initiator's timeouts, answer with our window, and open the session.  3.1.5.4.1"""
    if packet.refused:
        refused_after_all(data, "initiator")
        return
    data.ack_wait_timeout_ms = packet.ack_timeout_ms
    data.recoverable_ack_send_timeout_ms = packet.recoverable_ack_timeout_ms
    data.send(proposed_parameters(data))
    open_session(data, packet.window_size, now)


def adopt_parameters(data: SessionData, packet: ConnectionParameters, now: Moment) -> None:
    """Take the acceptor's window, and open the session.  3.1.5.4.2"""
    if packet.refused:
        refused_after_all(data, "acceptor")
        return
    open_session(data, packet.window_size, now)


def refused_after_all(data: SessionData, peer: str) -> None:
    """Handle ConnectionParameters with CS set, which means a refusal.  [MS-MQQB] 2.2.1

    3.1.5.4 does not mention it.
    """
    data.status = ConnectionStatus.CONNECTION_REFUSED
    data.close("2.2.1", f"the {peer} refused the connection in its ConnectionParameters")


def proposed_parameters(data: SessionData) -> ConnectionParameters:
    """Return the ConnectionParameters packet with this session's values.  3.1.5.3.2, 3.1.5.4.1"""
    return ConnectionParameters(
        recoverable_ack_timeout_ms=data.recoverable_ack_send_timeout_ms,
        ack_timeout_ms=data.ack_wait_timeout_ms,
        window_size=data.settings.window_size,
    )


def open_session(data: SessionData, window_size: int, now: Moment) -> None:
    """Open the session, because both sides now know the parameters.  3.1.5.4

    A window of 0 would block the session, so it counts as 1.
    """
    data.received_window_size = max(1, window_size)
    data.state = SessionState.OPEN
    data.status = ConnectionStatus.ESTABLISHED
    data.timers.stop(Timer.SESSION_INITIALIZATION, data.key)
    data.timers.start(
        Timer.SESSION_CLEANUP, data.key, now.uptime_ms + data.settings.session_cleanup_timeout_ms
    )


def start_initialization_timer(data: SessionData, now: Moment) -> None:
    """Start or restart the Session Initialization Timer.  3.1.2.1"""
    deadline_ms = now.uptime_ms + data.settings.session_initialization_timeout_ms
    data.timers.start(Timer.SESSION_INITIALIZATION, data.key, deadline_ms)
