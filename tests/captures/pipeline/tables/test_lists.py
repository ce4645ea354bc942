from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from mqproto.captures.decode.names import Names, destination_format_name
from mqproto.captures.decode.row import identifier_text
from mqproto.captures.decode.sequences import shown
from mqproto.captures.net.tcp import Endpoint
from mqproto.captures.pipeline.tables.lists import (
    batch_of,
    batches_of,
    identifier_of,
    key_of,
    key_text,
    mapped,
    message_of,
    queue_of,
    values,
)
from mqproto.testing.packets import user_messages
from mqproto.wire import Guid, TxSequenceId, UserMessage

GUIDS = st.binary(min_size=16, max_size=16).map(Guid)
COLUMNS = st.one_of(
    st.tuples(st.just(pa.int64()), st.lists(st.none() | st.integers(-(2**63), 2**63 - 1))),
    st.tuples(st.just(pa.int32()), st.lists(st.none() | st.integers(-(2**31), 2**31 - 1))),
    st.tuples(st.just(pa.bool_()), st.lists(st.none() | st.booleans())),
    st.tuples(st.just(pa.string()), st.lists(st.none() | st.text())),
)


@given(COLUMNS, st.integers(0, 5))
def test_values_are_those_of_the_column_also_of_a_slice(column: tuple[Any, list[Any]], skipped: int) -> None:
    kind, expected = column
    batch = batch_of(pa.schema([("it", kind)]), [(each,) for each in expected])
    assert values(batch, "it") == expected
    assert values(batch.slice(skipped), "it") == expected[skipped:]


@given(st.lists(st.none() | st.sampled_from(["a", "bb", "ccc"])))
def test_each_different_text_is_read_once(texts: list[str | None]) -> None:
    read = []

    def length(text: str) -> int:
        read.append(text)
        return len(text)

    batch = batch_of(pa.schema([("it", pa.string())]), [(text,) for text in texts])
    assert mapped(batch, "it", length) == [None if text is None else len(text) for text in texts]
    assert len(read) == len(set(read)) == len(set(texts) - {None})


def test_tables_without_rows_are_left_out_and_a_batch_without_rows_has_its_columns() -> None:
    schema = pa.schema([("it", pa.int64())])
    assert batch_of(schema, []).schema == schema
    assert list(batches_of({"some": schema, "none": schema}, {"some": [(1,)], "none": []})) == ["some"]


@given(GUIDS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_keys_of_queue_managers_messages_and_sequences_come_back_as_they_went(
    guid: Guid, one: int, other: int
) -> None:
    assert key_of(key_text(guid)) == guid
    assert message_of(identifier_text(guid, one)) == (guid, one)
    identifier = TxSequenceId(time_stamp=one, ordinal=other)
    assert identifier_of(shown(identifier)) == identifier


@pytest.mark.parametrize("host", ["10.0.0.1", "fe80::1", "2001:db8:1:2:3:4:5:6", "x" * 31 + "-----"])
def test_an_address_is_no_guid(host: str) -> None:
    for text in (host, str(Endpoint(host, 1801))):
        assert key_of(key_text(text)) == text


@given(user_messages())
def test_a_destination_is_called_the_same_by_its_format_name_as_by_its_packet(message: UserMessage) -> None:
    user, names = message.user, Names()
    text = destination_format_name(user)
    if text is not None:
        called = names.queue(queue_of(text), user.queue_manager_address)
        assert called.casefold() == names.destination(user).casefold()
