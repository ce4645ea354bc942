"""An operator's declarations about other queue managers, and the rule for whose GUIDs are believed.

A GUID is a claim: any peer may present any GUID. It is believed in a session that we opened to its declared address, in
one that comes from such an address, and in one whose certificate is pinned to it. All other peers are strangers.
[MS-MQQB] 3.1.5.3 has no such rule, and 5.1 leaves the matter to the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from mqproto.base.errors import UsageError
from mqproto.wire.guid import Guid

ANYWHERE: Final = "any"
"""The origin that includes every address."""
HOST_BITS_V6: Final = 64
"""The prefix length of a host's IPv6 addresses. A host may have a whole /64, which counts as one host."""
REMEMBERED_ADDRESSES: Final = 4_096


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue manager that an operator knows.

    origins: where its sessions may come from: addresses, networks such as `10.0.0.0/8`, or `any`.
    certified: whether it uses only TLS, in both directions, regardless of its address.
    brings: the other queue managers whose messages it may bring, as a declared router on their ways to us.
    """

    origins: tuple[str, ...] = ()
    certified: bool = False
    brings: frozenset[Guid] = frozenset()


def comes_from(host: str, origins: tuple[str, ...]) -> bool:
    """Return whether an address is one of these origins, or lies within one of them."""
    return ANYWHERE in origins or host in origins or _within(host, origins)


@lru_cache(REMEMBERED_ADDRESSES)
def _within(host: str, origins: tuple[str, ...]) -> bool:
    address = address_of(host)
    if address is None:
        return False
    return any(address in network for network in map(_network, origins) if network is not None)


@lru_cache(REMEMBERED_ADDRESSES)
def _network(origin: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(origin)
    except ValueError:
        return None  # It is a name, which `comes_from` has compared.


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return a host's address in a form for comparison; None for a name.

    The zone is left out, and an IPv4 address inside an IPv6 address becomes IPv4.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(REMEMBERED_ADDRESSES)
def host_group(host: str) -> str:
    """Return the unit that counts as one host: an IPv4 address, a /64 network of IPv6, or a name."""
    address = address_of(host)
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address) >> HOST_BITS_V6 << HOST_BITS_V6, HOST_BITS_V6)))
    return host if address is None else str(address)


def check_origin(origin: str) -> None:
    """Check that an origin is valid.

    Raises:
        UsageError: the origin is not an address, a network, or `any`.
    """
    try:
        if origin != ANYWHERE:
            ip_network(origin)
    except ValueError as error:
        raise UsageError(
            f"{origin!r}: {error}; write an address, a network as 10.0.0.0/8, or {ANYWHERE}"
        ) from None


def brought_by(way: str, at: str, links: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the nodes whose messages a neighbour may bring: all that reach it without passing `at`.

    Args:
        way: the neighbour.
        at: the node that asks.
        links: for each node, the nodes that it is linked to.

    Returns:
        The nodes behind the neighbour. A neighbour without further links brings only its own messages.
    """
    found, new = {way}, [way]
    while new:
        for other in links.get(new.pop(), ()):
            if other != at and other not in found:
                found.add(other)
                new.append(other)
    return found - {way}
