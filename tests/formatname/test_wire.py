r"""Names go through a packet's three queue fields and its lists, and come out unchanged."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import FormatNameError
from mqproto.formatname import (
    ConnectorName,
    DirectName,
    DistributionListName,
    MultipleElementName,
    PrivateName,
    Protocol,
    PublicName,
    Scope,
    SingleName,
    parse_format_name,
)
from mqproto.formatname.wire import (
    admin_from_wire,
    destination_from_wire,
    destination_to_wire,
    destinations_from_wire,
    destinations_to_wire,
    element_from_wire,
    element_to_wire,
    response_from_wire,
)
from mqproto.wire.guid import NULL_GUID, Guid, guid_text
from mqproto.wire.layouts.multiqueue import MqfFormatNameElement
from mqproto.wire.layouts.user import PrivateQueueFormatName, QueueName

SOURCE, DESTINATION, THIRD = (Guid(bytes([n]) * 16) for n in (1, 2, 3))

# Few managers, so that source, destination and administration queue often share one.
managers = st.sampled_from([SOURCE, DESTINATION, THIRD])
private_names = st.builds(PrivateName, managers, st.integers(0, 2**32 - 1))
direct_names = st.builds(
    DirectName,
    st.just(Protocol.OS),
    st.just("host"),
    st.text("abc$.-", min_size=1),
    st.sampled_from(["public", "private"]).map(Scope),
)
names = private_names | direct_names | st.builds(PublicName, managers)
maybe_names = st.none() | names


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@given(names)
def test_a_destination_survives_the_wire(name: SingleName) -> None:
    queue_type, value = destination_to_wire(name)
    assert queue_type in (3, 5, 7)
    manager = name.manager if isinstance(name, PrivateName) else NULL_GUID
    assert destination_from_wire(queue_type, value, manager) == name


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@given(names, managers, managers, maybe_names)
def test_what_lies_elsewhere_goes_by_the_same_types_as_a_destination(
    name: SingleName, source: Guid, destination: Guid, admin: SingleName | None
) -> None:
    if isinstance(name, PrivateName):
        field: tuple[int, QueueName] = 6, PrivateQueueFormatName(name.manager, name.identifier)
    else:
        field = destination_to_wire(name)
    assert admin_from_wire(*field, source, destination) == name
    assert response_from_wire(*field, source, destination, admin) == name


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.4")
@given(names | st.builds(DistributionListName, managers))
def test_an_element_of_a_list_survives_the_wire(name: SingleName) -> None:
    assert element_from_wire(element_to_wire(name)) == name


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.parametrize(
    ("field", "admin", "expected"),
    [
        ((0, None), None, None),
        ((2, 16), None, PrivateName(SOURCE, 16)),
        ((3, 16), None, PrivateName(DESTINATION, 16)),
        ((4, 16), PrivateName(THIRD, 17), PrivateName(THIRD, 16)),
        ((1, None), PrivateName(THIRD, 16), PrivateName(THIRD, 16)),
        ((1, None), None, None),
    ],
)
def test_a_response_queue_lies_where_its_type_says(
    field: tuple[int, QueueName], admin: SingleName | None, expected: SingleName | None
) -> None:
    assert response_from_wire(*field, SOURCE, DESTINATION, admin) == expected
    if field[0] in (0, 2, 3):
        assert admin_from_wire(*field, SOURCE, DESTINATION) == expected


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.5.2")
def test_a_direct_name_travels_without_its_keyword() -> None:
    assert destination_to_wire(parse_format_name(r"DIRECT=OS:a04bm02\q")) == (7, r"OS:a04bm02\q")


@pytest.mark.spec("[MS-MQMQ] 2.2.19.2")
@pytest.mark.spec("[MS-MQQB] 3.1.7.4")
@given(st.builds(ConnectorName, managers, st.booleans()))
def test_a_connector_queue_travels_as_the_public_queue_of_its_guid(name: ConnectorName) -> None:
    public = PublicName(name.guid)
    assert destination_to_wire(name) == destination_to_wire(public) == (5, name.guid)
    assert element_from_wire(element_to_wire(name)) == public
    both: list[SingleName] = [name, ConnectorName(name.guid, not name.transactional), public]
    assert destinations_from_wire(destinations_to_wire(both)) == [public], "a list has each queue once"


@pytest.mark.parametrize(
    "text",
    [
        r"DIRECT=OS:host\q;JOURNAL",
        f"MACHINE={guid_text(THIRD)};DEADXACT",
        r"DIRECT=OS:a\q,DIRECT=OS:b\q",
        "MULTICAST=239.1.1.1:8001",
        f"DL={guid_text(THIRD)}",
    ],
)
def test_a_name_that_one_message_cannot_go_to_is_refused(text: str) -> None:
    name = parse_format_name(text)
    with pytest.raises(FormatNameError, match="; "):
        destination_to_wire(name)


@pytest.mark.spec("[MS-MQMQ] 2.2.18.1.4")
@pytest.mark.parametrize(
    "text",
    [
        r"DIRECT=OS:host\q;JOURNAL",
        f"PUBLIC={guid_text(THIRD)};JOURNAL",
        f"PRIVATE={guid_text(THIRD)}\\00000010;JOURNAL",
        "MULTICAST=239.1.1.1:8001",
    ],
)
def test_a_name_that_no_list_can_hold_is_refused(text: str) -> None:
    name = parse_format_name(text)
    assert not isinstance(name, MultipleElementName)
    with pytest.raises(FormatNameError, match="cannot be listed in a packet"):
        element_to_wire(name)


@pytest.mark.spec("[MS-MQMQ] 2.2.20.1")
@pytest.mark.spec("[MS-MQDMPR] 3.1.7.3.8")
@given(st.lists(names, max_size=6))
def test_a_list_of_destinations_comes_out_sorted_and_with_each_name_once(listed: list[SingleName]) -> None:
    found = destinations_from_wire(destinations_to_wire(listed))
    keys = [str(name).casefold() for name in found]
    assert keys == sorted({str(name).casefold() for name in listed})
    assert set(found) <= set(listed)


Field: TypeAlias = tuple[int, QueueName]


@pytest.mark.parametrize(
    "field",
    [(2, 16), (5, "text"), (7, 16), (7, r"OS:a\q,DIRECT=OS:b\q"), (7, "nonsense"), (6, SOURCE), (1, None)],
)
def test_a_destination_of_another_kind_than_its_type_is_refused(field: Field) -> None:
    with pytest.raises(FormatNameError):
        destination_from_wire(*field, DESTINATION)


def test_a_host_that_the_admin_queue_does_not_tell_is_no_host() -> None:
    with pytest.raises(FormatNameError, match="type 4"):
        response_from_wire(4, 16, SOURCE, DESTINATION, PublicName(THIRD))


def test_a_direct_element_is_read_as_leniently_as_a_person_is() -> None:
    element = MqfFormatNameElement(3, format_name=r"os:host\private$\q")
    assert str(element_from_wire(element)) == r"DIRECT=OS:host\PRIVATE$\q"
