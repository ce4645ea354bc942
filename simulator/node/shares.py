"""How much of a node's time strangers get: together a share, and each host as much of it as any other.

Who is not known, or has not said yet who it is, is read in small pieces. What a piece costs, until the batch with it is
carried out, is laid to the account of the host that it came from, and the host is read again when that is paid off.
Known queue managers and applications have no account.

The connections of a host are served in the order in which they come. Each waits for what is owed when it comes, and for
nothing that is laid to the account after that: else one could wait for as long as others make new connections.
"""

from __future__ import annotations

from typing import Final

import trio

from mqproto.routing.peers import host_group

PIECE_BYTES: Final = 16 * 1024
"""What is read of a stranger at a time: others wait for that long, some 3 ms of small messages."""
DEBT_LIMIT_S: Final = 1.0
"""A host that is read again only after this time gets no further connection."""
ACCOUNTS: Final = 4_096
"""How many hosts have an account: beyond, one more shares that of all the others."""
OTHERS: Final = "other hosts"


class Shares:
    """The accounts of hosts. A host is an address of IPv4 or a /64 of IPv6.

    Args:
        percent: the share of the time that strangers get together, more than 0.
    """

    def __init__(self, percent: float) -> None:
        self._share = percent / 100
        self._paid_at: dict[str, float] = {}
        """By host, when what it has cost is paid off, on trio's clock; the soonest is not first."""
        self._looked_at = 0.0

    def debt_s(self, host: str) -> float:
        """In how many seconds what a host has cost is paid off; 0 if it is."""
        return max(0.0, self._paid_at.get(self._account(host), 0.0) - trio.current_time())

    async def turn(self, host: str) -> None:
        """Return when a host may be read again. Without debt there is no checkpoint.

        The time at which all is paid off only ever moves on, so nobody who comes later is read earlier. While one of n
        connections waits, each of the others is read once at most: so a host owes no more than n pieces, and what its
        new connections cost.
        """
        paid_at = self._paid_at.get(self._account(host), 0.0)
        if paid_at > trio.current_time():
            await trio.sleep_until(paid_at)

    def took(self, host: str, cost_s: float) -> None:
        """What came from a host took this much of the node's time."""
        now = trio.current_time()
        if now - self._looked_at >= DEBT_LIMIT_S:
            self._looked_at = now
            self._paid_at = {host: paid for host, paid in self._paid_at.items() if paid > now}
        account = self._account(host)
        paid_at = max(now, self._paid_at.get(account, now))
        self._paid_at[account] = paid_at  # It counts among those that share.
        self._paid_at[account] += cost_s * len(self._paid_at) / self._share

    def _account(self, host: str) -> str:
        account = host_group(host)
        return account if account in self._paid_at or len(self._paid_at) < ACCOUNTS else OTHERS
