r"""Every possible name can be printed and read back; for every other text, the error says what is wrong with it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from mqproto.base.errors import FormatNameError
from mqproto.formatname import (
    ConnectorName,
    DirectName,
    DistributionListName,
    FormatName,
    MachineName,
    MulticastName,
    MultipleElementName,
    PathName,
    PrivateName,
    Protocol,
    PublicName,
    Scope,
    SingleName,
    SystemQueue,
    direct_name,
    parse_format_name,
    parse_path_name,
    parse_queue_name,
)
from mqproto.formatname.path import LocalName
from mqproto.wire.guid import Guid, guid_from_text

GUID_TEXT = "557358D1-5055-9591-9549-97B6E611EA26"
GUID = guid_from_text(GUID_TEXT)

# The alphabets of [MS-MQMQ] 2.1.1, and the space that Windows has, written out here a second time on purpose.
QUEUE_ALPHABET = "".join(c for c in map(chr, range(0x20, 0x80)) if c not in '\\;+,"')
COMPUTER_ALPHABET = "".join(c for c in map(chr, range(0x21, 0x7F)) if c not in '\\/;,":=+@')
KEYWORDS = {"private$", "system$", "journal$", "deadletter$", "xactdeadletter$"}


def free(text: str) -> bool:
    """Whether the text is not a keyword."""
    return text.lower() not in KEYWORDS


guids = st.binary(min_size=16, max_size=16).map(Guid)
computers = st.text(COMPUTER_ALPHABET, min_size=1, max_size=256).filter(free)
queues = (
    st.text(QUEUE_ALPHABET, min_size=1, max_size=124).filter(free).filter(lambda text: text.strip() == text)
)
subqueues = st.text(QUEUE_ALPHABET, min_size=1, max_size=32).filter(
    lambda text: text.lower() != "journal" and text.strip() == text
)
scopes = st.sampled_from([Scope.PUBLIC, Scope.PRIVATE])
system_names = st.sampled_from(list(SystemQueue)).map(lambda queue: LocalName(queue.value, Scope.SYSTEM))
open_names = st.tuples(queues, scopes, st.just("") | subqueues).map(lambda parts: LocalName(*parts))
journal_names = st.tuples(queues, scopes).map(lambda parts: LocalName(*parts, journal=True))
local_names = open_names | journal_names | system_names
path_names = st.builds(
    lambda computer, local: PathName(computer, *local), computers, local_names
) | st.builds(PathName, computers, queues, st.just(Scope.SYSTEM))

ip_addresses = st.ip_addresses().map(str) | st.ip_addresses(v=6).map(lambda address: f"{address}%eth0")
ports = st.integers(0, 65_535)
web_hosts = computers.filter(lambda text: not set("[]") & set(text)) | st.ip_addresses(v=6).map("[{}]".format)
web_addresses = web_hosts | st.builds("{}:{}".format, web_hosts, ports)
ipx_addresses = st.builds("{:08x}:{:012x}".format, st.integers(0, 2**32 - 1), st.integers(0, 2**48 - 1))
addresses = st.one_of(
    st.tuples(st.just(Protocol.OS), computers),
    st.tuples(st.just(Protocol.TCP), ip_addresses),
    st.tuples(st.sampled_from([Protocol.HTTP, Protocol.HTTPS]), web_addresses),
    st.tuples(st.just(Protocol.IPX), ipx_addresses),
)


def single_names(
    locals_: st.SearchStrategy[LocalName], journal: st.SearchStrategy[bool]
) -> list[st.SearchStrategy[SingleName]]:
    """Return strategies for names with one element.

    Messages can be sent to these names, unless the arguments are strategies for journals or system queues.
    """
    return [
        st.builds(lambda address, local: DirectName(*address, *local), addresses, locals_),
        st.builds(PublicName, guids, journal),
        st.builds(PrivateName, guids, st.integers(0, 2**32 - 1), journal),
        st.builds(
            DistributionListName,
            guids,
            st.text("".join(c for c in map(chr, range(0x21, 0x7F)) if c != ","), max_size=255),
        ),
        st.builds(ConnectorName, guids, st.booleans()),
        st.builds(MulticastName, st.ip_addresses(network="224.0.0.0/4").map(str), ports),
    ]


destinations = st.one_of(single_names(open_names, st.just(False)))
format_names: st.SearchStrategy[FormatName] = st.one_of(
    *single_names(local_names, st.booleans()),
    st.builds(MachineName, guids, st.none() | st.sampled_from(SystemQueue)),
    st.builds(MultipleElementName, st.lists(destinations, min_size=2, max_size=4).map(tuple)),
)
FRAGMENTS = rf"""
    DIRECT= Direct PUBLIC= PRIVATE= DL= MACHINE= CONNECTOR= MULTICAST= FORMATNAME: = : TCP OS: TCP: SPX: HTTP://h/MSMQ
    host q 10.0.0.1 fe80::1 :1801 . \ \\ / private$ PRIVATE$\ system$; SYSTEM$ journal ;JOURNAL Journal$
    ;DEADXACT ; , @ 239.1.1.1:8001 {{{GUID_TEXT}}} {GUID_TEXT} \0000000f ;XACTONLY msmq:// net.msmq:// é
"""
fragments = st.sampled_from([*FRAGMENTS.split(), " ", "\n", "\x00"])
texts = st.text() | st.lists(fragments, max_size=12).map("".join)


@given(format_names)
def test_a_printed_format_name_reads_back_as_itself(name: FormatName) -> None:
    assert parse_format_name(str(name)) == name


@given(path_names)
def test_a_printed_path_name_reads_back_as_itself(name: PathName) -> None:
    assert parse_path_name(str(name)) == name


@given(format_names | path_names)
def test_a_queue_name_is_told_apart_by_how_it_begins(name: FormatName | PathName) -> None:
    assert parse_queue_name(str(name)) == name


def refusal(parse: Callable[[str], object], text: str) -> str:
    """Return the parser's error for a text; empty if the parser can read it."""
    try:
        parse(text)
    except FormatNameError as error:
        return str(error)
    return ""


@given(texts)
@example("\ufb06")
@example("DIRECT=OS:h\\sy\ufb06em$;deadxact")
@example("DIRECT=HTTP://h:99999/MSMQ\\q")
@pytest.mark.parametrize("parse", [parse_format_name, parse_path_name, parse_queue_name])
def test_any_text_is_read_or_refused_in_one_line(parse: Callable[[str], object], text: str) -> None:
    if said := refusal(parse, text):
        assert len(said.splitlines()) == 1
    else:
        assert parse(str(parse(text))) == parse(text)


@given(texts)
@example("host\\FORMATNAME:q")
@pytest.mark.parametrize("parse", [parse_format_name, parse_path_name])
def test_a_name_that_a_refusal_recommends_is_a_name(parse: Callable[[str], object], text: str) -> None:
    if advice := re.search(r"write (\S+)$", refusal(parse, text)):
        assert not refusal(parse, advice[1])


@given(format_names)
def test_the_case_of_a_name_decides_nothing(name: FormatName) -> None:
    for text in (str(name).lower(), str(name).upper(), str(name).swapcase()):
        assert str(parse_format_name(text)).lower() == str(name).lower()


@pytest.mark.spec("[MS-MQMQ] 2.1")
@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        (r"direct=os:host\private$\Orders;journal", r"DIRECT=OS:host\PRIVATE$\Orders;JOURNAL"),
        (r"  FormatName: Direct = Os: host\q ", r"DIRECT=OS:host\q"),
        (r"msmq.formatname:DIRECT=OS:.\private$\q", r"DIRECT=OS:.\PRIVATE$\q"),
        (r"DIRECT=TCP:10.0.0.1\q;later", r"DIRECT=TCP:10.0.0.1\q;later"),
        (r"DIRECT=TCP:[FE80:0::1]\q", r"DIRECT=TCP:fe80::1\q"),
        (r"DIRECT=SPX:12.a0234f7500\q", r"DIRECT=IPX:00000012:00A0234F7500\q"),
        (r"DIRECT=http://host/msmq/private$/q", r"DIRECT=HTTP://host/MSMQ\PRIVATE$\q"),
        (r"DIRECT=HTTPS://[::1]:0443/MSMQ\a/b", r"DIRECT=HTTPS://[::1]:443/MSMQ\a/b"),
        (r"DIRECT=HTTP://host:/MSMQ\q", r"DIRECT=HTTP://host/MSMQ\q"),
        (r"DIRECT=OS:host\system$;DeadXact", r"DIRECT=OS:host\SYSTEM$;DEADXACT"),
        (r"DIRECT=OS:host\DeadLetter$", r"DIRECT=OS:host\SYSTEM$;DEADLETTER"),
        (f"Public={{{GUID_TEXT.lower()}}}", f"PUBLIC={GUID_TEXT}"),
        (f"private={GUID_TEXT}\\F;journal", f"PRIVATE={GUID_TEXT}\\0000000F;JOURNAL"),
        (f"dl={GUID_TEXT}@contoso.com", f"DL={GUID_TEXT}@contoso.com"),
        (f"machine={GUID_TEXT}", f"MACHINE={GUID_TEXT}"),
        (f"machine={GUID_TEXT};deadletter", f"MACHINE={GUID_TEXT};DEADLETTER"),
        (f"connector={GUID_TEXT};xactonly", f"CONNECTOR={GUID_TEXT};XACTONLY"),
        ("multicast=239.1.1.1:8001", "MULTICAST=239.1.1.1:8001"),
        (f"DIRECT=OS:a\\q , DL={GUID_TEXT}", f"DIRECT=OS:a\\q,DL={GUID_TEXT}"),
    ],
)
def test_usual_spellings_print_as_the_canonical_one(spelling: str, canonical: str) -> None:
    assert str(parse_format_name(spelling)) == canonical


@pytest.mark.spec("[MS-MQMQ] 2.1.1")
@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        (r" .\Private$\Orders ", r".\private$\Orders"),
        (r"host\q", r"host\q"),
        (r"host\private$\q;JOURNAL", r"host\private$\q;JOURNAL"),
        (r".\private$\q\Journal$", r".\private$\q;JOURNAL"),
        (r".\q\Journal$", r".\q;JOURNAL"),
        (r"host\SYSTEM$;DeadXact", r"host\system$;DEADXACT"),
        (r".\XactDeadLetter$", r".\system$;DEADXACT"),
        (r".\Journal$", r".\system$;JOURNAL"),
        (r"host\q;poison", r"host\q;poison"),
    ],
)
def test_usual_path_names_print_as_the_canonical_one(spelling: str, canonical: str) -> None:
    assert str(parse_path_name(spelling)) == canonical


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (r"DIRECT=TCP:host\q", r"TCP takes an IP address; for a computer name write DIRECT=OS:host\q"),
        (r"DIRECT=OS:fe80::1\q", r"OS takes a computer name; for an IP address write DIRECT=TCP:fe80::1\q"),
        (r"DIRECT=TCP:10.0.0.1:1801\q", r"a direct name has no port; write DIRECT=TCP:10.0.0.1\q"),
        (r"DIRECT=TCP:host:1801\q", r"a direct name has no port; write DIRECT=OS:host\q"),
        (r"DIRECT=host\q", r"DIRECT= takes a protocol; write DIRECT=OS:host\q"),
        (r"DIRECT=10.0.0.1\q", r"DIRECT= takes a protocol; write DIRECT=TCP:10.0.0.1\q"),
        (r"DIRECT=OS:host/private$/q", r"backslashes separate the parts; write DIRECT=OS:host\PRIVATE$\q"),
        (r"DIRECT=TCP:10.0.0.1/q", r"backslashes separate the parts; write DIRECT=TCP:10.0.0.1\q"),
        (r"DIRECT=OS:host\\q", r"single backslashes separate the parts; write DIRECT=OS:host\q"),
        (r"OS:host\q", r"DIRECT= is missing; write DIRECT=OS:host\q"),
        (
            r"TCP:host",
            r"DIRECT= is missing, and no queue is named after the computer, as in DIRECT=OS:computer\queue",
        ),
        (r"host\private$\q", r"this is a path name; as a format name write DIRECT=OS:host\PRIVATE$\q"),
        ("orders@server", r"queue@computer is not a name to MSMQ; write DIRECT=OS:server\PRIVATE$\orders"),
        (f"PUBLC={GUID_TEXT}", "PUBLC= is not a keyword; did you mean PUBLIC=?"),
        (
            "orders",
            "a format name begins with DIRECT=, PUBLIC=, PRIVATE=, DL=, MACHINE=, CONNECTOR=, MULTICAST=",
        ),
        ("DIRECT=FTP:host\\q", "FTP is not a protocol; it is OS, TCP, HTTP, HTTPS or IPX"),
        ("DIRECT=HTTP://host/q", r"HTTP takes //host/MSMQ\queue or //host:port/MSMQ\queue"),
        ("DIRECT=HTTP://h:65536/MSMQ/q", "port 65536 is not within 0 to 65535"),
        ("DIRECT=HTTP://h:x/MSMQ/q", "HTTP takes a host or host:port, an IPv6 host in brackets"),
        ("DIRECT=TCP:fe80::1%a b\\q", "fe80::1%a b has no usable scope after the %"),
        ("DIRECT=IPX:host\\q", "IPX takes network:node, 8 and 12 hexadecimal digits"),
        ("DIRECT=OS:host", r"no queue is named after the computer, as in DIRECT=OS:computer\queue"),
        (
            "DIRECT=OS:h/system$;x",
            r"no queue is named after the computer, as in DIRECT=OS:computer\queue",
        ),
        ("DIRECT=\\", r"DIRECT= takes OS:computer\queue or TCP:address\queue"),
        ("DIRECT=OS:h\\system$;dead", "after SYSTEM$; comes JOURNAL, DEADLETTER or DEADXACT"),
        ("PUBLIC=5", f"PUBLIC= takes a GUID, as in {GUID_TEXT}"),
        (f"PUBLIC={{{GUID_TEXT}", f"PUBLIC= takes a GUID, as in {GUID_TEXT}"),
        (f"MACHINE={GUID_TEXT};x", "only ;JOURNAL or ;DEADLETTER or ;DEADXACT can follow a MACHINE= name"),
        (
            f"PRIVATE={GUID_TEXT}",
            "PRIVATE= takes the queue manager's GUID, a backslash and the queue's number",
        ),
        (
            f"PRIVATE={GUID_TEXT}\\orders",
            "orders is not a queue's number; it has one to eight hexadecimal digits",
        ),
        (f"PRIVATE={GUID_TEXT}\\1;x", "only ;JOURNAL can follow a PRIVATE= name"),
        (f"DL={GUID_TEXT}@", "no domain follows the @; leave it out"),
        ("MULTICAST=239.1.1.1", "MULTICAST= takes an address and a port, as in MULTICAST=239.1.1.1:8001"),
        ("MULTICAST=239.1.1.1:070", "070 is not a port; it is a number from 0 to 65535"),
        ("MULTICAST=239.1.1.1:65536", "port 65536 is not within 0 to 65535"),
        ("MULTICAST=10.1.1.1:1", "MULTICAST takes an address from 224.0.0.0 to 239.255.255.255 and a port"),
        (
            "MULTICAST=239.1.1.256:1",
            "MULTICAST takes an address from 224.0.0.0 to 239.255.255.255 and a port",
        ),
        ("DIRECT=OS:a\\q,", "there is nothing where a format name should be"),
        ("DIRECT=OS:h\\\u00e9", "a name has ASCII characters only"),
    ],
)
def test_a_format_name_that_is_none_says_what_would_be_right(text: str, advice: str) -> None:
    with pytest.raises(FormatNameError) as refused:
        parse_format_name(text)
    assert str(refused.value) == f"{text}: {advice}"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("./private$/q", r"backslashes separate the parts; write .\private$\q"),
        ("orders@server", r"queue@computer is not a name to MSMQ; write server\private$\orders"),
        ("net.msmq://server/private/orders", r"a URL is not a name to MSMQ; write server\private$\orders"),
        (r"private$\q", r"the computer is missing; write .\private$\q"),
        (r"\\server\q", r"single backslashes separate the parts; write server\q"),
        ("orders", r"a path name is computer\queue or computer\private$\queue"),
        (r"host\private$", r"after private$ comes a backslash and the queue's name"),
        (r"host\system$", "after system$ comes ;JOURNAL, ;DEADLETTER or ;DEADXACT"),
        (r"host\system$\deadxact", "after system$ comes a semicolon, as in system$;DEADXACT"),
        (r"host\a\b", r"too many backslashes; it is computer\queue or computer\private$\queue"),
        ("host\\", "a name is empty before or after a backslash; separate with single backslashes"),
        (r"host\q;", "nothing follows the semicolon; leave it out"),
        (r"host\q;a;b", "at most one ;SUBQUEUE or ;JOURNAL can follow a queue's name"),
        *(
            (text, r"a path name is wanted here and this is a format name; write computer\queue")
            for text in (r"DIRECT=OS:h\q", r"FormatName:DIRECT=OS:.\q")
        ),
    ],
)
def test_a_path_name_that_is_none_says_what_would_be_right(text: str, advice: str) -> None:
    with pytest.raises(FormatNameError) as refused:
        parse_path_name(text)
    assert str(refused.value) == f"{text}: {advice}"


@pytest.mark.spec("[MS-MQMQ] 2.1.1")
@pytest.mark.parametrize(
    ("part", "limit"),
    [("queue", 124), ("computer", 256), ("subqueue", 32)],
    ids=["queue", "computer", "subqueue"],
)
def test_names_may_be_as_long_as_the_specification_says_and_no_longer(part: str, limit: int) -> None:
    longest: dict[str, Any] = {part: "x" * limit}
    name = replace(PathName("host", "orders"), **longest)
    assert parse_path_name(str(name)) == name
    with pytest.raises(FormatNameError, match=f"has {limit + 1} characters; at most {limit}"):
        replace(name, **{part: longest[part] + "x"})


@pytest.mark.spec("[MS-MQMQ] 2.1.1")
@pytest.mark.parametrize("character", [*'"+,;\\', "\x00", "\x80"])
def test_a_queue_name_has_only_characters_of_its_alphabet(character: str) -> None:
    with pytest.raises(FormatNameError, match="a queue name cannot contain"):
        PathName("host", f"a{character}b")


@pytest.mark.parametrize("part", ["queue", "subqueue"])
@pytest.mark.parametrize("name", [" a", "a ", " "])
def test_a_name_neither_begins_nor_ends_with_a_space(part: str, name: str) -> None:
    named: dict[str, Any] = {"queue": "orders", part: name}
    with pytest.raises(FormatNameError, match=f"a {part} name neither begins nor ends with a space"):
        PathName("host", **named)


@pytest.mark.spec("[MS-MQMQ] 2.2.7")
@pytest.mark.parametrize(
    "local",
    [
        LocalName("q", Scope.PUBLIC, "sub", True),
        LocalName("DEADXACT", Scope.SYSTEM, "sub"),
        LocalName("DEADXACT", Scope.SYSTEM, "", True),
        LocalName("private$"),
        LocalName("q", Scope.PRIVATE, "Journal"),
    ],
)
def test_a_name_has_one_suffix_and_no_keyword_for_a_name(local: LocalName) -> None:
    with pytest.raises(FormatNameError):
        DirectName(Protocol.OS, "host", *local)


@pytest.mark.spec("[MS-MQMQ] 2.1.7")
@pytest.mark.parametrize(
    "read_only",
    [
        r"DIRECT=OS:b\q;JOURNAL",
        r"DIRECT=OS:b\SYSTEM$;DEADXACT",
        f"PUBLIC={GUID_TEXT};JOURNAL",
        f"PRIVATE={GUID_TEXT}\\00000001;JOURNAL",
        f"MACHINE={GUID_TEXT};DEADLETTER",
    ],
)
def test_a_read_only_queue_is_no_element_of_a_longer_name(read_only: str) -> None:
    assert parse_format_name(read_only).read_only
    with pytest.raises(FormatNameError, match="is read-only and nothing can be sent to it; leave it out"):
        parse_format_name(f"DIRECT=OS:a\\q,{read_only}")


@pytest.mark.spec("[MS-MQMQ] 2.1.7")
def test_one_element_alone_is_no_multiple_element_name() -> None:
    assert isinstance(parse_format_name(r"DIRECT=OS:a\q"), DirectName)
    with pytest.raises(FormatNameError, match="two elements or more"):
        MultipleElementName((PublicName(GUID),))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: PublicName(Guid(b"short")), "a GUID has 16 bytes, not 5"),
        (lambda: PrivateName(GUID, 2**32), "an identifier has 32 bits, which 0x100000000 does not fit"),
        (lambda: PathName("private$", "q"), "the computer is missing"),
        (lambda: PathName("", "q"), "the computer name is empty"),
        (lambda: DistributionListName(GUID, "a,b"), "a domain name cannot contain ','"),
    ],
)
def test_a_record_refuses_what_could_not_be_written_down(wrong: Callable[[], object], why: str) -> None:
    with pytest.raises(FormatNameError, match=re.escape(why)):
        wrong()


@given(path_names.filter(lambda name: name.scope is not Scope.SYSTEM))
def test_a_path_name_has_a_direct_name_of_the_same_parts(path: PathName) -> None:
    name = direct_name(path)
    assert (name.protocol, name.address, name.local) == (Protocol.OS, path.computer, path.local)
    assert name.read_only == path.read_only == path.journal


@given(st.ip_addresses())
def test_an_ip_address_has_one_spelling(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert DirectName(Protocol.TCP, address.exploded, "q") == DirectName(
        Protocol.TCP, address.compressed, "q"
    )


def test_a_hostile_text_is_quoted_in_part() -> None:
    with pytest.raises(FormatNameError) as refused:
        parse_format_name("x" * 1_000_000)
    told = str(refused.value)
    assert len(told) < 300
    assert "x... (1,000,000 characters): a format name begins with" in told
