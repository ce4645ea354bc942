"""What a format name means to a queue manager."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.formatname import parse_format_name
from mqproto.messages.destinations import Destination, destination_in, destination_of
from mqproto.routing import NextHop, Routes
from mqproto.wire import NULL_GUID, guid_text, user_message
from tests.pair import guid_of

US, B, C, PUBLIC = guid_of("a"), guid_of("b"), guid_of("c"), guid_of("public")
HERE = guid_of("public here")
ROUTES = Routes(
    managers={B: (NextHop(B, "10.0.0.2"),), C: (NextHop(B, "10.0.0.2"),)},
    hosts={"10.0.0.2": NextHop(B, "10.0.0.2", 1_901), "server": NextHop(B, "10.0.0.2")},
    own_hosts=frozenset({"10.0.0.1", "me"}),
    publics={PUBLIC: C, HERE: US},
)


def meant(name: str) -> Destination | None:
    return destination_of(parse_format_name(name), ROUTES, US)


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@pytest.mark.parametrize(
    ("name", "manager", "queue", "host"),
    [
        (rf"PRIVATE={guid_text(C)}\00000010", C, 16, None),
        (rf"PRIVATE={guid_text(US)}\00000010", US, 16, None),
        (rf"PRIVATE={guid_text(guid_of('nobody'))}\00000010", guid_of("nobody"), 16, None),
        (f"PUBLIC={guid_text(PUBLIC)}", C, PUBLIC, None),
        (f"PUBLIC={guid_text(HERE)}", US, HERE, None),
        (r"DIRECT=TCP:10.0.0.2\PRIVATE$\q", B, r"TCP:10.0.0.2\PRIVATE$\q", "10.0.0.2"),
        (r"DIRECT=OS:Server\q", B, r"OS:Server\q", "server"),
        (r"DIRECT=TCP:10.9.9.9\q", None, r"TCP:10.9.9.9\q", "10.9.9.9"),
        (r"DIRECT=TCP:10.0.0.1\q", US, r"TCP:10.0.0.1\q", "10.0.0.1"),
        (r"DIRECT=OS:ME\PRIVATE$\q", US, r"OS:ME\PRIVATE$\q", "me"),
    ],
)
def test_a_name_leads_to_a_queue_manager_or_to_a_host(
    name: str, manager: bytes | None, queue: int | bytes | str, host: str | None
) -> None:
    found = meant(name)
    assert found == Destination(name, manager, queue, host)  # type: ignore[arg-type]


@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@pytest.mark.parametrize(("suffix", "transactional"), [("", False), (";XACTONLY", True)])
def test_a_connector_name_leads_to_the_queue_manager_that_has_the_queue_of_its_guid(
    suffix: str, transactional: bool
) -> None:
    public = f"PUBLIC={guid_text(PUBLIC)}"
    found = meant(f"CONNECTOR={guid_text(PUBLIC)}{suffix}")
    assert found == Destination(public, C, PUBLIC, transactional=transactional)
    assert found.address == C


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.spec("[MS-MQQB] 3.1.7.12")
@pytest.mark.parametrize(
    "name",
    [
        f"PUBLIC={guid_text(guid_of('unknown'))}",
        rf"PRIVATE={guid_text(C)}\00000010;JOURNAL",
        f"PUBLIC={guid_text(PUBLIC)};JOURNAL",
        r"DIRECT=OS:server\q;JOURNAL",
        r"DIRECT=OS:server\SYSTEM$;DEADXACT",
        r"DIRECT=HTTP://server/MSMQ\q",
        r"DIRECT=HTTPS://server/MSMQ\q",
        r"DIRECT=IPX:00000001:000000000002\q",
        f"MACHINE={guid_text(C)};DEADLETTER",
        f"CONNECTOR={guid_text(C)}",
        f"DL={guid_text(C)}",
        "MULTICAST=239.1.1.1:8001",
        rf"DIRECT=OS:server\q,PRIVATE={guid_text(C)}\00000010",
    ],
)
def test_what_cannot_be_sent_to_from_here_is_no_destination(name: str) -> None:
    assert meant(name) is None


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
def test_a_direct_name_goes_with_the_null_guid_and_the_others_with_their_manager() -> None:
    names = (rf"PRIVATE={guid_text(C)}\00000010", f"PUBLIC={guid_text(PUBLIC)}", r"DIRECT=OS:server\q")
    found = [meant(name) for name in names]
    assert [each.address for each in found if each] == [C, C, NULL_GUID]
    assert Destination("nowhere", None, 1).address == NULL_GUID


@given(
    st.one_of(
        st.builds(
            lambda manager, number: rf"PRIVATE={guid_text(manager)}\{number:08X}",
            st.sampled_from([US, B, C]),
            st.integers(0, 2**32 - 1),
        ),
        st.sampled_from([f"PUBLIC={guid_text(PUBLIC)}", f"PUBLIC={guid_text(HERE)}"]),
        st.sampled_from([r"DIRECT=TCP:10.0.0.2\PRIVATE$\q", r"DIRECT=OS:Server\q", r"DIRECT=TCP:[::1]\q"]),
    )
)
def test_where_a_packet_was_going_is_read_from_it_again(name: str) -> None:
    destination = meant(name)
    assert destination is not None
    message = user_message(
        source=B,
        destination_manager=destination.address,
        destination=destination.queue,
        message_id=1,
        sent_time_s=0,
        body=b"",
    )
    assert destination_in(message, ROUTES, US) == destination


def test_a_packet_without_a_destination_leads_nowhere() -> None:
    message = user_message(
        source=B, destination_manager=C, destination=1, message_id=1, sent_time_s=0, body=b""
    )
    message.user.destination_queue, message.user.destination_type = None, 0
    assert destination_in(message, ROUTES, US) is None
