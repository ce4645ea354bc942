r"""Format names, with which MSMQ's packets and interfaces name a queue.  [MS-MQMQ] 2.1

An example is `DIRECT=OS:server\orders`.

`str` returns a name's canonical form: keywords and GUIDs in capitals, no braces, identifiers with eight digits. A
record refuses values that have no text form, so `parse_format_name(str(name)) == name` for every record.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, TypeAlias

from mqproto.base.errors import FormatNameError
from mqproto.formatname.path import (
    LocalName,
    PathName,
    Scope,
    SystemQueue,
    check_computer,
    check_text,
    told,
)
from mqproto.wire.guid import Guid, guid_text

DOMAIN_LIMIT: Final = 255
_DOMAIN_CHARACTERS: Final = frozenset(map(chr, range(0x21, 0x7F))) - {","}


class Protocol(StrEnum):
    """The way in which a direct name reaches its computer.  [MS-MQMQ] 2.1.2

    [MS-MQQB] 2.2.4 writes SPX instead of IPX; both can be read.
    """

    TCP = "TCP"
    OS = "OS"
    HTTP = "HTTP"
    HTTPS = "HTTPS"
    IPX = "IPX"


@dataclass(frozen=True, slots=True)
class DirectName:
    r"""A queue named by its computer and its name there.  [MS-MQMQ] 2.1.2

    An example is `DIRECT=TCP:10.0.0.1\PRIVATE$\orders`.

    address: for OS, a computer's name; for TCP, an IPv4 or IPv6 address; for HTTP and HTTPS, host or host:port, with
        an IPv6 host in brackets; for IPX, network:node in hexadecimal.
    queue, scope, subqueue, journal: as in PathName; a system queue is one of SystemQueue.

    Raises:
        FormatNameError: such a name cannot exist. All the records below raise it, too.
    """

    protocol: Protocol
    address: str
    queue: str
    scope: Scope = Scope.PUBLIC
    subqueue: str = ""
    journal: bool = False

    def __post_init__(self) -> None:
        local = self.local.checked()
        if self.scope is Scope.SYSTEM and local.queue not in SystemQueue.__members__:
            raise FormatNameError("after SYSTEM$; comes JOURNAL, DEADLETTER or DEADXACT")
        object.__setattr__(self, "address", _canonical_address(self.protocol, self.address))
        object.__setattr__(self, "queue", local.queue)

    @property
    def local(self) -> LocalName:
        """The queue's name on its own computer."""
        return LocalName(self.queue, self.scope, self.subqueue, self.journal)

    @property
    def read_only(self) -> bool:
        """Whether the name is that of a journal or a dead-letter queue, to which nobody can send."""
        return self.local.read_only

    @property
    def wire_text(self) -> str:
        """The text that packets carry: the name without `DIRECT=`.  [MS-MQMQ] 2.2.18.1.5.2"""
        web = self.protocol in (Protocol.HTTP, Protocol.HTTPS)
        address = f"//{self.address}/MSMQ" if web else self.address
        return f"{self.protocol}:{address}\\{self.local.text('PRIVATE$', 'SYSTEM$')}"

    def __str__(self) -> str:
        return f"DIRECT={self.wire_text}"


@dataclass(frozen=True, slots=True)
class PublicName:
    """A queue named by its GUID in the directory: `PUBLIC=GUID`.  [MS-MQMQ] 2.1.3

    The ABNF has no form for the journal of a public queue, but QUEUE_FORMAT does ([MS-MQMQ] 2.2.7), so `;JOURNAL` is
    read and printed.
    """

    guid: Guid
    journal: bool = False

    def __post_init__(self) -> None:
        _check_guid(self.guid)

    @property
    def read_only(self) -> bool:
        """Whether the name is that of the queue's journal."""
        return self.journal

    def __str__(self) -> str:
        return f"PUBLIC={guid_text(self.guid)}{';JOURNAL' if self.journal else ''}"


@dataclass(frozen=True, slots=True)
class PrivateName:
    r"""A private queue named by its queue manager and a 32-bit number.  [MS-MQMQ] 2.1.4

    An example is `PRIVATE=GUID\00000010`.
    """

    manager: Guid
    identifier: int
    journal: bool = False

    def __post_init__(self) -> None:
        _check_guid(self.manager)
        if not 0 <= self.identifier < 2**32:
            raise FormatNameError(f"an identifier has 32 bits, which {self.identifier:#x} does not fit")

    @property
    def read_only(self) -> bool:
        """Whether the name is that of the queue's journal."""
        return self.journal

    def __str__(self) -> str:
        return f"PRIVATE={guid_text(self.manager)}\\{self.identifier:08X}{';JOURNAL' if self.journal else ''}"


@dataclass(frozen=True, slots=True)
class DistributionListName:
    """A list of queues in the directory: `DL=GUID@domain`.  [MS-MQMQ] 2.1.5

    domain: up to 255 visible characters, or empty. It cannot have a comma, which would begin the next element.
    """

    read_only: ClassVar[bool] = False

    guid: Guid
    domain: str = ""

    def __post_init__(self) -> None:
        _check_guid(self.guid)
        if self.domain:
            check_text("domain name", self.domain, DOMAIN_LIMIT, _DOMAIN_CHARACTERS)

    def __str__(self) -> str:
        return f"DL={guid_text(self.guid)}{'@' + self.domain if self.domain else ''}"


@dataclass(frozen=True, slots=True)
class MachineName:
    """A computer's own queue: `MACHINE=GUID;DEADXACT`.  [MS-MQMQ] 2.1.6

    The ABNF ends with the GUID; the suffix in [MS-MQMQ] 2.2.7 says which queue is meant. Both forms are read.
    """

    read_only: ClassVar[bool] = True

    manager: Guid
    queue: SystemQueue | None = None

    def __post_init__(self) -> None:
        _check_guid(self.manager)

    def __str__(self) -> str:
        return f"MACHINE={guid_text(self.manager)}{f';{self.queue}' if self.queue else ''}"


@dataclass(frozen=True, slots=True)
class ConnectorName:
    """A connector queue: `CONNECTOR=GUID`, with `;XACTONLY` after it for the transactional one. [MS-MQMQ] 2.1.6,
    2.2.7
    """

    read_only: ClassVar[bool] = False

    guid: Guid
    transactional: bool = False

    def __post_init__(self) -> None:
        _check_guid(self.guid)

    def __str__(self) -> str:
        return f"CONNECTOR={guid_text(self.guid)}{';XACTONLY' if self.transactional else ''}"


@dataclass(frozen=True, slots=True)
class MulticastName:
    """All queues that listen on an IPv4 multicast address: `MULTICAST=239.1.1.1:8001`.  [MS-MQMQ] 2.1.6

    address: 224.0.0.0 to 239.255.255.255.
    port: 0 to 65535.
    """

    read_only: ClassVar[bool] = False

    address: str
    port: int

    def __post_init__(self) -> None:
        try:
            multicast = ipaddress.IPv4Address(self.address).is_multicast
        except ValueError:
            multicast = False
        if not multicast:
            raise FormatNameError("MULTICAST takes an address from 224.0.0.0 to 239.255.255.255 and a port")
        if not 0 <= self.port <= 65_535:
            raise FormatNameError(f"port {self.port} is not within 0 to 65535")

    def __str__(self) -> str:
        return f"MULTICAST={self.address}:{self.port}"


SingleName: TypeAlias = (
    DirectName | PublicName | PrivateName | DistributionListName | MachineName | ConnectorName | MulticastName
)


@dataclass(frozen=True, slots=True)
class MultipleElementName:
    """Two or more destinations, separated by commas; a message goes to each.  [MS-MQMQ] 2.1.7"""

    read_only: ClassVar[bool] = False

    elements: tuple[SingleName, ...]

    def __post_init__(self) -> None:
        if len(self.elements) < 2:
            raise FormatNameError("a multiple-element name has two elements or more; use the one by itself")
        for element in self.elements:
            # The ABNF leaves out MACHINE=, because all the queues that it names are read-only.
            if element.read_only:
                raise FormatNameError(f"{element} is read-only and nothing can be sent to it; leave it out")

    def __str__(self) -> str:
        return ",".join(map(str, self.elements))


FormatName: TypeAlias = SingleName | MultipleElementName


def direct_name(path: PathName) -> DirectName:
    """Return the direct format name for a path name.

    The name uses TCP for an IP address, and OS for a computer's name.
    """
    try:
        return DirectName(Protocol.TCP, path.computer, *path.local)
    except FormatNameError:
        return DirectName(Protocol.OS, path.computer, *path.local)


def _canonical_address(protocol: Protocol, address: str) -> str:
    """Return the address in the form in which it is printed.  [MS-MQMQ] 2.1.2

    Raises:
        FormatNameError: the protocol does not accept the address.
    """
    match protocol:
        case Protocol.OS:
            check_computer(address)
            return address
        case Protocol.TCP:
            return _canonical_ip(address)
        case Protocol.HTTP | Protocol.HTTPS:
            return _canonical_host(address)
    # The rest is IPX, where [MS-MQQB] 2.2.4 separates with a dot.
    found = re.fullmatch(r"([0-9A-Fa-f]{1,8})[:.]([0-9A-Fa-f]{1,12})", address)
    if not found:
        raise FormatNameError("IPX takes network:node, 8 and 12 hexadecimal digits")
    return f"{found[1].upper():0>8}:{found[2].upper():0>12}"


def _canonical_host(text: str) -> str:
    found = re.fullmatch(r"(\[[^\[\]]+\]|[^:\[\]]+)(?::([0-9]{0,5}))?", text)
    if not found:
        raise FormatNameError("HTTP takes a host or host:port, an IPv6 host in brackets")
    host, port = found.groups()
    if host.startswith("["):
        host = f"[{_canonical_ip(host)}]"
    else:
        check_computer(host)
    if port and int(port) > 65_535:
        raise FormatNameError(f"port {port} is not within 0 to 65535")
    return f"{host}:{int(port)}" if port else host


def _canonical_ip(text: str) -> str:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        raise FormatNameError(f"{told(text)} is not an IP address") from None
    # Python accepts anything as a scope.
    if "%" in bare and not re.fullmatch(r"[0-9A-Za-z._-]+", bare.partition("%")[2]):
        raise FormatNameError(f"{told(text)} has no usable scope after the %")
    return str(address)


def _check_guid(guid: Guid) -> None:
    if len(guid) != 16:
        raise FormatNameError(f"a GUID has 16 bytes, not {len(guid)}")
