"""Reads format names in every usual spelling, and says what is wrong with any other text.  [MS-MQMQ] 2.1"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Final

from mqproto.base.errors import FormatNameError
from mqproto.formatname.names import (
    ConnectorName,
    DirectName,
    DistributionListName,
    FormatName,
    MachineName,
    MulticastName,
    MultipleElementName,
    PrivateName,
    Protocol,
    PublicName,
    SingleName,
    direct_name,
)
from mqproto.formatname.path import PathName, SystemQueue, guess, parse_local, parse_path_name, told
from mqproto.wire.guid import Guid, guid_from_text

# System.Messaging and WCF put these before a format name.
_PREFIX: Final = re.compile(r"\A\s*(?:msmq\.)?formatname\s*:", re.IGNORECASE | re.ASCII)


def parse_format_name(text: str) -> FormatName:
    """Read any format name of [MS-MQMQ] 2.1.

    Keywords and GUIDs may be in upper or lower case, GUIDs may be in braces, and `FORMATNAME:` or `msmq.formatname:`
    may come first. Spaces may surround elements, `=` and a protocol's colon. Slashes separate parts only where MSMQ
    allows it: in HTTP addresses.

    Raises:
        FormatNameError: the text is not a format name. The error is one line that says what is wrong and, if there is a
            guess, which name was probably meant.
    """
    try:
        # Beyond ASCII, a change of case can change the length and even turn other text into a keyword.
        if not text.isascii():
            raise FormatNameError("a name has ASCII characters only")
        elements = tuple(_parse_element(element.strip()) for element in _PREFIX.sub("", text, 1).split(","))
        return elements[0] if len(elements) == 1 else MultipleElementName(elements)
    except FormatNameError as error:
        raise FormatNameError(f"{told(text)}: {error}") from None


def parse_queue_name(text: str) -> FormatName | PathName:
    """Read a queue's name as people write it: a format name if it begins with `KEYWORD=`, otherwise a path name.

    Raises:
        FormatNameError: the text is neither.
    """
    if _PREFIX.match(text) or re.match(r"\s*[A-Za-z]*\s*=", text):
        return parse_format_name(text)
    try:
        return parse_path_name(text)
    except FormatNameError:
        # The computer may not be known here, so suggest its format name, which always works.
        if (meant := guess(text)) is not None and meant.path.computer != ".":
            raise FormatNameError(f"{told(text)}: {meant.reason}; write {direct_name(meant.path)}") from None
        for beginning in ("DIRECT=", "DIRECT=TCP:"):
            try:
                name = parse_format_name(beginning + text.strip())
            except FormatNameError:
                continue
            raise FormatNameError(f"{told(text)}: {beginning} is missing; write {name}") from None
        raise


def _parse_element(text: str) -> SingleName:
    if not text:
        raise FormatNameError("there is nothing where a format name should be")
    keyword, equals, rest = text.partition("=")
    if equals and (parse := _KEYWORDS.get(keyword.strip().upper())):
        return parse(rest.strip())
    raise FormatNameError(_what_was_meant(text, keyword.strip().upper() if equals else ""))


def _what_was_meant(text: str, keyword: str) -> str:
    """Return an explanation for a text that does not begin with any of the seven keywords."""
    if re.match(r"(?:OS|TCP|HTTPS?|IPX|SPX):", text, re.IGNORECASE):
        try:
            return f"DIRECT= is missing; write {_parse_direct(text)}"
        except FormatNameError as error:
            return f"DIRECT= is missing, and {error}"
    try:
        return f"this is a path name; as a format name write {direct_name(parse_path_name(text))}"
    except FormatNameError:
        if meant := _offer(text, Protocol.OS):
            return meant
    if near := difflib.get_close_matches(keyword[:20], _KEYWORDS, 1):
        return f"{told(keyword)}= is not a keyword; did you mean {near[0]}=?"
    return f"a format name begins with {'=, '.join(_KEYWORDS)}="


def _offer(text: str, *protocols: Protocol) -> str | None:
    """Return the reason why a text is wrong, with the direct name that was probably meant.

    Return None if there is no such name. The name uses the first of `protocols` with which it can be written.
    """
    if meant := guess(text):
        for protocol in protocols:
            try:
                return f"{meant.reason}; write {DirectName(protocol, meant.path.computer, *meant.path.local)}"
            except FormatNameError:
                continue
    return None


def _parse_direct(text: str) -> DirectName:
    prefix, colon, rest = text.partition(":")
    if not colon or "\\" in prefix or "/" in prefix:
        raise FormatNameError(_without_protocol(text))
    keyword = prefix.strip().upper()
    try:
        protocol = Protocol("IPX" if keyword == "SPX" else keyword)
    except ValueError:
        raise FormatNameError(
            f"{told(prefix)} is not a protocol; it is OS, TCP, HTTP, HTTPS or IPX"
        ) from None

    if protocol in (Protocol.HTTP, Protocol.HTTPS):
        return _parse_web(protocol, rest.strip())
    address, backslash, queue = rest.strip().partition("\\")
    try:
        if not backslash:
            raise FormatNameError(r"no queue is named after the computer, as in DIRECT=OS:computer\queue")
        return DirectName(protocol, address, *parse_local(queue))
    except FormatNameError as error:
        meant = _offer(rest, protocol, Protocol.OS) or _better_direct(protocol, address, queue)
        raise FormatNameError(meant or str(error)) from None


def _without_protocol(text: str) -> str:
    """Return an explanation for a direct name without a protocol."""
    computer, _, queue = text.partition("\\")
    for protocol in (Protocol.TCP, Protocol.OS):
        try:
            better = DirectName(protocol, computer, *parse_local(queue))
        except FormatNameError:
            continue
        return f"DIRECT= takes a protocol; write {better}"
    return _offer(text, Protocol.OS) or r"DIRECT= takes OS:computer\queue or TCP:address\queue"


def _parse_web(protocol: Protocol, text: str) -> DirectName:
    r"""Read the form `//host:80/MSMQ\private$\orders`, or the same with slashes only."""
    found = re.fullmatch(r"//([^/\\]+)[/\\]MSMQ([/\\])(.*)", text, re.IGNORECASE | re.DOTALL)
    if not found:
        raise FormatNameError(rf"{protocol} takes //host/MSMQ\queue or //host:port/MSMQ\queue")
    address, separator, queue = found.groups()
    # After a backslash, a slash is a character of the queue's name, according to the ABNF.
    return DirectName(
        protocol, address, *parse_local(queue.replace("/", "\\") if separator == "/" else queue)
    )


def _better_direct(protocol: Protocol, address: str, queue: str) -> str | None:
    """Suggest a name for an address that the protocol does not accept.

    Return None if there is no suggestion.
    """
    host, _, port = address.rpartition(":")
    candidates = []
    if port.isdigit():
        no_port = "a direct name has no port;"
        candidates += [(no_port, protocol, host), (no_port, Protocol.OS, host)]
    if protocol is Protocol.TCP:
        candidates.append(("TCP takes an IP address; for a computer name", Protocol.OS, address))
    if protocol is Protocol.OS:
        candidates.append(("OS takes a computer name; for an IP address", Protocol.TCP, address))
    for reason, better, place in candidates:
        try:
            return f"{reason} write {DirectName(better, place, *parse_local(queue))}"
        except FormatNameError:
            continue
    return None


def _parse_public(text: str) -> PublicName:
    guid, suffix = _guid_and_suffix("PUBLIC", text, ("JOURNAL",))
    return PublicName(guid, suffix == "JOURNAL")


def _parse_private(text: str) -> PrivateName:
    manager, backslash, rest = text.partition("\\")
    number, semicolon, suffix = rest.partition(";")
    if not backslash:
        raise FormatNameError(r"PRIVATE= takes the queue manager's GUID, a backslash and the queue's number")
    if not re.fullmatch(r"[0-9A-Fa-f]{1,8}", number):
        raise FormatNameError(
            f"{told(number)} is not a queue's number; it has one to eight hexadecimal digits"
        )
    if semicolon and suffix.upper() != "JOURNAL":
        raise FormatNameError("only ;JOURNAL can follow a PRIVATE= name")
    return PrivateName(_guid("PRIVATE", manager), int(number, 16), bool(semicolon))


def _parse_list(text: str) -> DistributionListName:
    guid, at, domain = text.partition("@")
    if at and not domain:
        raise FormatNameError("no domain follows the @; leave it out")
    return DistributionListName(_guid("DL", guid), domain)


def _parse_machine(text: str) -> MachineName:
    guid, suffix = _guid_and_suffix("MACHINE", text, tuple(SystemQueue))
    return MachineName(guid, SystemQueue(suffix) if suffix else None)


def _parse_connector(text: str) -> ConnectorName:
    guid, suffix = _guid_and_suffix("CONNECTOR", text, ("XACTONLY",))
    return ConnectorName(guid, suffix == "XACTONLY")


def _parse_multicast(text: str) -> MulticastName:
    address, colon, port = text.partition(":")
    if not colon:
        raise FormatNameError("MULTICAST= takes an address and a port, as in MULTICAST=239.1.1.1:8001")
    if not re.fullmatch(r"0|[1-9][0-9]{0,4}", port):
        raise FormatNameError(f"{told(port)} is not a port; it is a number from 0 to 65535")
    return MulticastName(address, int(port))


def _guid_and_suffix(keyword: str, text: str, suffixes: tuple[str, ...]) -> tuple[Guid, str]:
    """Return the GUID and the suffix that follows it, which may be empty."""
    guid, semicolon, suffix = text.partition(";")
    if semicolon and suffix.upper() not in suffixes:
        raise FormatNameError(f"only ;{' or ;'.join(suffixes)} can follow a {keyword}= name")
    return _guid(keyword, guid), suffix.upper()


def _guid(keyword: str, text: str) -> Guid:
    bare = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if not re.fullmatch(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}", bare):
        raise FormatNameError(f"{keyword}= takes a GUID, as in 557358D1-5055-9591-9549-97B6E611EA26")
    return guid_from_text(bare)


_KEYWORDS: Final[dict[str, Callable[[str], SingleName]]] = {
    "DIRECT": _parse_direct,
    "PUBLIC": _parse_public,
    "PRIVATE": _parse_private,
    "DL": _parse_list,
    "MACHINE": _parse_machine,
    "CONNECTOR": _parse_connector,
    "MULTICAST": _parse_multicast,
}
