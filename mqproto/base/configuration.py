"""Timers and limits, with the specification's names and the defaults of Windows.

They are from [MS-MQQB] 3.1.1.3, 3.1.2, 3.1.3 and the product behavior notes in its appendix A. The last group of
settings has no counterpart in the specification. It limits the resources that a peer or a backlog may use.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from mqproto.base.errors import UsageError

ACK_WAIT_TIMEOUT_RANGE_MS = (20_000, 120_000)
RECOVERABLE_ACK_TIMEOUT_RANGE_MS = (500, 120_000)
WINDOWS_REMEMBERED: Final = 4
"""How many windows of messages are always remembered for one neighbour: two of express messages, and two of recoverable
messages.
"""
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
"""The values that each of these settings may have.  3.1.1.3"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one queue manager that an operator may change.

    Raises:
        UsageError: a value is not allowed by the specification, or makes no sense.
    """

    window_size: int = 64
    """WindowSize: how many UserMessages may be unacknowledged on a session. The smaller of the two ends' values
    applies.
    """
    ack_wait_timeout_ms: int = 20_000
    """AckWaitTimeout: close the session if neither a session acknowledgment nor another packet arrives within this
    time.
    """
    session_initialization_timeout_ms: int = 60_000
    session_cleanup_timeout_ms: int = 300_000
    try_connect_interval_ms: int = 5_000
    """Session Retry Connect Timer: the time between a failed or lost session and the next attempt."""

    answer_pings: bool = True
    """Whether to answer Pings: note <10>. Windows NT to Server 2003 always answer. They also ping before they connect,
    and do not connect without an answer. Windows since Vista answers only if configured to do so (EnablePingService).
    """
    require_pings: bool = False
    """Whether to ping a neighbour first, and to connect to it only if it answers: notes <7> and <56>.

    Windows NT to Server 2003 do so. Windows since Vista does not do so, and would not answer such a Ping.
    """

    order_ack_timeout_ms: int = 500
    maximum_order_ack_delay_s: float = 10
    resend_timeouts_short_s: float = 30
    resend_timeouts_medium_s: float = 300
    resend_timeouts_long_s: float = 1_800
    resend_timeouts_final_s: float = 21_600

    expire_sent: str = KEEP
    """What to do with a message that was sent, but is not acknowledged when its TimeToReachQueue ends.

    With KEEP, our own transactional message waits for its destination's answer; any other message of ours waits for the
    next hop's answer, or for the end of the session. Transactional messages of others are passed on.

    With FIGURES, all of these messages end, as in figures 5, 7, 9 and 10. Our own transactional message may have
    arrived, so it becomes a dead letter in doubt until its destination reports the outcome. A message that asks for a
    journal, but not for a dead letter, is journaled instead. [MS-MQQB] 3.1.1.1.1.3, .5, .7, .8
    """

    waypoints: bool = False
    """Whether to log each step of each message; see mqproto/turn/waypoints.py."""

    remove_duplicate_size: int = 131_072
    """The maximum number of entries in the MessageIDHistoryTable for all senders together; it must be at least four
    times `window_size`. The value in Windows is 10,000. An entry takes about 100 bytes of memory.
    """
    remove_duplicate_cleanup_ms: int = 1_800_000
    """How long an entry stays in the MessageIDHistoryTable if there is room. The newest entries of each sender stay
    longer; see manager/identifiers.py.
    """

    send_insecure_nacks: bool = False
    """SendInsecureNacks: whether administration queues are told about refusals that could inform strangers.

    For example, such a refusal shows that a queue does not exist.  5.1
    """
    quota_bytes: int = 8 * 2**30
    """QueueManagerQuota: the maximum number of bytes on disk. Beyond it, no message is accepted, whether from
    applications or from neighbours.
    """
    journal_quota_bytes: int | None = None
    """JournalQuota: the quota of the journal and of each dead-letter queue. Messages beyond it are dropped. None means
    that there is no limit.
    """

    maximum_sessions: int = 1_000
    """The number of sessions beyond which strangers are refused. Known queue managers are never refused for this
    reason.
    """
    maximum_sequences: int = 20_000
    """The maximum number of incoming sequences, one for each combination of sender, queue and name used for the queue.
    Further sequences are turned away.
    """
    strangers_share_percent: int = 25
    """The percentage of a node's time that all strangers together may use; it is divided equally among their hosts."""
    strangers_sequences: int = 1_000
    """The maximum number of strangers' incoming sequences in memory. Beyond it, a sequence of the host that has the
    most is moved to disk.
    """
    strangers_remembered: int = 8_192
    """The number of strangers' messages that the MessageIDHistoryTable remembers."""
    strangers_queue_bytes: int = 16 * 2**20
    """A number of bytes. A stranger's message is refused if its queue already holds more than this."""
    strangers_unfinished_bytes: int = 32 * 2**20
    """The maximum number of bytes of unfinished packets from all strangers. Beyond it, a packet of the host that has
    the most bytes is dropped.
    """
    peers_remembered: int = 1_000
    """The number of undeclared queue managers to remember, each with the address where it was met."""
    peers_forgotten_days: int = 30
    """The number of days for which undeclared queue managers are remembered after they were last seen."""
    roaming: bool = False
    """Whether an undeclared GUID may move to another address.

    It moves once no queue manager with this GUID answers at the old address any longer.
    """
    answers_awaited_s: int = 86_400
    """How long, in seconds, to keep calling a queue manager outside the topology for answers to our messages."""
    held_messages_limit: int = 4_096
    held_bytes_limit: int = 16 * 2**20
    """The maximum number of bytes that a sequence may hold after a gap. Messages beyond it are dropped; their sender
    keeps them.
    """
    resend_batch: int = 1_024
    """The number of messages to resend before an OrderAck must confirm that they have arrived."""
    resident_messages: int = 512
    resident_bytes: int = 4 * 2**20
    """The number of bytes of each queue that stay in memory. Other messages are read from the store when their turn
    comes.
    """
    in_flight_bytes: int = 8 * 2**20
    """The maximum number of unacknowledged bytes on one session; a single message is always allowed."""

    preferred_advanced_algorithm: int = 0x6610
    """PreferredAdvancedAlgorithm, which encrypts bodies for receivers that have an AES key. The default is AES-256."""
    preferred_enhanced_algorithm: int = 0x6801
    """PreferredEnhancedAlgorithm. The default is RC4."""
    preferred_base_algorithm: int = 0x6801
    """PreferredBaseAlgorithm. The default is RC4."""
    send_enhanced_rc2_using_40_bit_keys: bool = False
    reject_enhanced_rc2_using_40_bit_keys: bool = False
    receive_symmetric_key_cache_size: int = 127
    send_symmetric_key_cache_size: int = 53
    symmetric_key_short_lifetime_ms: int = 600_000
    """SymmetricKeyShortLifetime: how long a session key is used."""
    user_cert_cache_size: int = 53
    user_cert_lifetime_ms: int = 1_200_000
    """UserCertLifetime: how long a user's certificate remains valid here after it was seen in the directory."""

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
        """Whether a sent message ends when its TimeToReachQueue has expired, as in the figures."""
        return self.expire_sent == FIGURES

    @property
    def page_limits(self) -> tuple[int, int]:
        """The maximum number of messages in a page, and of bytes that they may take.

        A single message may be larger. A page is never larger than the part of a queue that may be in memory.
        """
        return min(PAGE_MESSAGES, self.resident_messages), min(PAGE_BYTES, self.resident_bytes)

    @property
    def resend_timer_table_ms(self) -> tuple[int, ...]:
        """ResendTimerTable: three short intervals, three medium, three long, and a final one.  [MS-MQQB] 3.1.3.1"""
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
