"""Timers and limits, with the specification's names and Windows' defaults.

[MS-MQQB] 3.1.1.3, 3.1.2, 3.1.3 and the product behavior notes in its appendix A. The last group has no counterpart
in the specification: it bounds what a peer or a backlog may cost us.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from mqproto.base.errors import UsageError

ACK_WAIT_TIMEOUT_RANGE_MS = (20_000, 120_000)
RECOVERABLE_ACK_TIMEOUT_RANGE_MS = (500, 120_000)
WINDOWS_REMEMBERED: Final = 4
"""How many windows of one neighbour are remembered at least: two of express and two of recoverable messages."""
PAGE_MESSAGES: Final = 256
PAGE_BYTES: Final = 4 * 2**20
KEEP: Final = "keep"
FIGURES: Final = "figures"
RC2_AND_RC4: Final = (0x6602, 0x6801)
ALGORITHMS: Final = {
    "preferred_advanced_algorithm": (0x660E, 0x660F, 0x6610),
    "preferred_enhanced_algorithm": RC2_AND_RC4,
    "preferred_base_algorithm": RC2_AND_RC4,
}
"""What each of them may be.  3.1.1.3"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an operator may change about one queue manager.

    Raises:
        UsageError: a value is outside the range that the specification or sense allows.
    """

    window_size: int = 64
    """WindowSize: how many UserMessages may be unacknowledged on a session; the smaller of both ends' counts."""
    ack_wait_timeout_ms: int = 20_000
    """AckWaitTimeout: the session closes if neither a session acknowledgment nor another packet comes for this time."""
    session_initialization_timeout_ms: int = 60_000
    session_cleanup_timeout_ms: int = 300_000
    try_connect_interval_ms: int = 5_000
    """Session Retry Connect Timer: from a failed or lost session to the next try."""

    answer_pings: bool = True
    """Whether Pings are answered: note <10>. Windows NT to Server 2003 always do, and ask before they call; without an
    answer they stay away. Windows since Vista answers only if it is told to (EnablePingService)."""
    require_pings: bool = False
    """Whether neighbours are asked by a Ping before they are called, and not called without an answer: note <7>, <56>.
    Windows NT to Server 2003 do so. Windows since Vista does not, and would not answer."""

    order_ack_timeout_ms: int = 500
    maximum_order_ack_delay_s: float = 10
    resend_timeouts_short_s: float = 30
    resend_timeouts_medium_s: float = 300
    resend_timeouts_long_s: float = 1_800
    resend_timeouts_final_s: float = 21_600

    expire_sent: str = KEEP
    """What becomes of a message whose TimeToReachQueue is over when it was sent, and its acknowledgment is awaited.

    KEEP: one of ours in a sequence waits for its destination's word, any other for that of the next hop or the end of
    the session, and a transactional one of others is passed on. FIGURES: each ends, as figures 5, 7, 9 and 10 have it.
    It may have arrived; one of ours in a sequence is a dead letter in doubt until its destination says more. One that
    asks for no dead letter is journaled instead, if it asks for that.  [MS-MQQB] 3.1.1.1.1.3, .5, .7, .8"""

    waypoints: bool = False
    """Whether each step of each message is a line of the log: mqproto/turn/waypoints.py."""

    remove_duplicate_size: int = 131_072
    """How many entries the MessageIDHistoryTable has at most, of all senders together; four times `window_size` at
    least. Windows has 10,000. An entry takes some 100 bytes of memory."""
    remove_duplicate_cleanup_ms: int = 1_800_000
    """How long each entry stays if there is room. The newest of each sender stay longer: manager/identifiers.py."""

    send_insecure_nacks: bool = False
    """SendInsecureNacks: whether an administration queue is told that a queue does not exist, say.  5.1"""
    quota_bytes: int = 8 * 2**30
    """QueueManagerQuota: what may be on disk. Beyond it nothing more is accepted, from applications and neighbours."""
    journal_quota_bytes: int | None = None
    """JournalQuota, for the journal and each dead-letter queue; what has no room there is dropped. None is no bound."""

    maximum_sessions: int = 1_000
    """Strangers are refused when there are more sessions than this; known queue managers are not."""
    maximum_sequences: int = 20_000
    """Incoming sequences, one for each sender, queue and name of the queue. One more is turned away."""
    strangers_share_percent: int = 25
    """The share of a node's time that strangers get together; each host as much of it as any other."""
    strangers_sequences: int = 1_000
    """Incoming sequences of strangers in memory; for one more the host that has the most has one on disk alone."""
    strangers_remembered: int = 8_192
    """How many of strangers' messages the MessageIDHistoryTable has."""
    strangers_queue_bytes: int = 16 * 2**20
    """What a queue may hold when a stranger's message is let in; one beyond it is refused."""
    strangers_unfinished_bytes: int = 32 * 2**20
    """What all strangers may have in packets that have begun and are not whole; beyond it the host with the most loses
    one."""
    peers_remembered: int = 1_000
    """How many queue managers are remembered that nobody has declared, with the address where each was met."""
    peers_forgotten_days: int = 30
    """For how long after they were seen last."""
    roaming: bool = False
    """Whether such a GUID may move to another address by itself, once nobody with it answers at the one before."""
    answers_awaited_s: int = 86_400
    """For how long at most one that is in no topology is called for the answers to what it was sent."""
    held_messages_limit: int = 4_096
    held_bytes_limit: int = 16 * 2**20
    """What one sequence may hold behind a gap; a message beyond it is dropped, its sender still has it."""
    resend_batch: int = 1_024
    """How many messages a resend sends before an OrderAck must say that they arrive."""
    resident_messages: int = 512
    resident_bytes: int = 4 * 2**20
    """What of each queue stays in memory; the rest is read from the store when its turn comes."""
    in_flight_bytes: int = 8 * 2**20
    """What may be unacknowledged on one session, in bytes; at least one message always may."""

    preferred_advanced_algorithm: int = 0x6610
    """PreferredAdvancedAlgorithm, with which bodies are encrypted for those who have a key for AES: AES-256."""
    preferred_enhanced_algorithm: int = 0x6801
    """PreferredEnhancedAlgorithm: RC4."""
    preferred_base_algorithm: int = 0x6801
    """PreferredBaseAlgorithm: RC4."""
    send_enhanced_rc2_using_40_bit_keys: bool = False
    reject_enhanced_rc2_using_40_bit_keys: bool = False
    receive_symmetric_key_cache_size: int = 127
    send_symmetric_key_cache_size: int = 53
    symmetric_key_short_lifetime_ms: int = 600_000
    """SymmetricKeyShortLifetime: a session key is used no longer."""
    user_cert_cache_size: int = 53
    user_cert_lifetime_ms: int = 1_200_000
    """UserCertLifetime: so long a user's certificate counts after it was seen in the directory."""

    def __post_init__(self) -> None:
        low, high = ACK_WAIT_TIMEOUT_RANGE_MS
        if not low <= self.ack_wait_timeout_ms <= high:
            raise UsageError(
                f"ack_wait_timeout_ms = {self.ack_wait_timeout_ms}: [MS-MQQB] 2.2.2.1 allows {low} to {high}"
            )
        if not 1 <= self.window_size <= 32_767:
            raise UsageError(f"window_size = {self.window_size}: must be 1 to 32767")
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.type not in ("bool", "str") and value is not None and value <= 0:
                raise UsageError(f"{setting.name} = {value}: must be more than 0")

        for name, known in ALGORITHMS.items():
            if getattr(self, name) not in known:
                words = ", ".join(f"{number:#06x}" for number in known)
                raise UsageError(f"{name} = {getattr(self, name):#x}: must be one of {words}")
        if self.expire_sent not in (KEEP, FIGURES):
            raise UsageError(f"expire_sent = {self.expire_sent}: must be {KEEP} or {FIGURES}")
        if self.strangers_share_percent > 100:
            raise UsageError(f"strangers_share_percent = {self.strangers_share_percent}: must be 1 to 100")
        if self.session_cleanup_timeout_ms <= self.resend_timer_table_ms[0]:
            raise UsageError(
                f"session_cleanup_timeout_ms = {self.session_cleanup_timeout_ms}: must be more than "
                f"resend_timeouts_short_s = {self.resend_timeouts_short_s}, or sessions end before a resend is due"
            )
        needed = WINDOWS_REMEMBERED * self.window_size
        if self.remove_duplicate_size < needed:
            raise UsageError(
                f"window_size = {self.window_size}: so many messages may come twice, and remove_duplicate_size = "
                f"{self.remove_duplicate_size} remembers too few of them: set it to {needed} at least"
            )

    @property
    def follows_figures(self) -> bool:
        """Whether what was sent ends when its time is over."""
        return self.expire_sent == FIGURES

    @property
    def page_limits(self) -> tuple[int, int]:
        """How many messages are looked through at a time, and the bytes that they may take unless it is a single one.

        What is looked through is no more than may be in memory of one queue.
        """
        return min(PAGE_MESSAGES, self.resident_messages), min(PAGE_BYTES, self.resident_bytes)

    @property
    def resend_timer_table_ms(self) -> tuple[int, ...]:
        """ResendTimerTable: three short, three medium, three long, one final.  [MS-MQQB] 3.1.3.1"""
        short, medium, long, final = (
            max(1, round(1_000 * seconds))
            for seconds in (
                self.resend_timeouts_short_s,
                self.resend_timeouts_medium_s,
                self.resend_timeouts_long_s,
                self.resend_timeouts_final_s,
            )
        )
        return (short,) * 3 + (medium,) * 3 + (long,) * 3 + (final,)
