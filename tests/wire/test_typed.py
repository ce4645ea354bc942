"""Functions with types, for a compiler: they read as those do that are made at import, and no stale one is taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from construct import Int8ul, Int64ul
from hypothesis import given

from mqproto.testing import nearly_valid_packets, user_messages
from mqproto.wire import UserMessage, encode_packet
from mqproto.wire import codec as of_nodes
from mqproto.wire.generator import REFUSALS, Refused, functions, typed
from mqproto.wire.generator.staging.tree import HEADERS, codec
from mqproto.wire.layouts.session import session_header
from mqproto.wire.packets import INTERNAL_PACKETS, user_message_packet
from mqproto.wire.schema.layout import Layout
from mqproto.wire.schema.record import Record
from simulator.base.program.build import COMPILED, build
from tests.examples import EVERY_PACKET

TYPED: dict[str, Any] = {}
exec(compile(codec(), typed.COMPILED, "exec"), TYPED)
"""As an interpreter reads it, for which types are no more than words."""
READERS = (user_message_packet, session_header, *INTERNAL_PACKETS.values())
PLAIN: dict[str, Callable[..., Any]] = {
    **{f"read_{record.kind.__name__}": functions.reader(record) for record in READERS},
    "check_UserMessage": functions.checker(user_message_packet),
    **{f"find_{name}_in_UserMessage": functions.finder(user_message_packet, name) for name in HEADERS},
}


def outcome(function: Callable[..., Any], name: str, data: bytes) -> Any:
    """A record with its padding, a place, or that it is refused."""
    try:
        found = function(data, None) if name == "read_UserMessage" else function(data)
    except REFUSALS:
        return "refused"
    return dataclasses.astuple(found) if dataclasses.is_dataclass(found) else found  # type: ignore[arg-type]


@given(nearly_valid_packets())
def test_what_may_be_no_packet_is_read_and_judged_the_same(data: bytes) -> None:
    for name, plain in PLAIN.items():
        if not name.startswith("find"):
            assert outcome(TYPED[name], name, data) == outcome(plain, name, data)


@given(user_messages())
def test_headers_are_found_in_the_same_place(message: UserMessage) -> None:
    data = encode_packet(message)
    for name in PLAIN:
        assert outcome(TYPED[name], name, data) == outcome(PLAIN[name], name, data)


@pytest.mark.parametrize("data", EVERY_PACKET)
def test_each_packet_is_read_the_same(data: bytes) -> None:
    read = [outcome(TYPED[name], name, data) for name in PLAIN]
    assert read == [outcome(PLAIN[name], name, data) for name in PLAIN]
    assert read != ["refused"] * len(read)


def test_the_codec_of_a_build_is_the_one_that_was_compiled_for_it() -> None:
    """Nothing was left to the interpreter, and the digests are those of these layouts: the import says otherwise."""
    for function in (
        of_nodes.read_user_message,
        of_nodes._check_user_message,
        of_nodes.read_session_header,
        of_nodes.transaction_offset,
        of_nodes.properties_offset,
        of_nodes.trailing_offset,
        *of_nodes._read_internal.values(),
    ):
        assert hasattr(function, "__code__") == (build() != COMPILED)


@dataclass
class Wide:
    number: int = 0
    small: int = 0


WIDE = Record(Wide, Layout("[X] 1", "number" / Int64ul, "small" / Int8ul))


def test_what_does_not_fit_a_number_of_c_is_none() -> None:
    source = typed.typed_reader(WIDE).source
    assert "    number: int\n" in source
    assert "    small: i64\n" in source


def built(**functions: Any) -> Any:
    """A module that a build has, with these functions and the digests of what the layouts make."""
    function = typed.typed_reader(WIDE)
    return SimpleNamespace(DIGESTS=dict.fromkeys(functions, function.digest), **functions)


def test_a_function_that_a_build_has_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "compiled", lambda: built(read_Wide=len))
    assert typed.reader(WIDE) is len


def test_one_that_it_does_not_have_is_made_of_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "compiled", lambda: built())
    assert typed.reader(WIDE)(bytes([7, 0, 0, 0, 0, 0, 0, 0, 9])) == Wide(7, 9)
    with pytest.raises(Refused):
        typed.checker(WIDE)(bytes(10))
    assert typed.finder(WIDE, "small")(bytes(9)) == 8


def test_one_of_other_layouts_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Record(Wide, Layout("[X] 1", "small" / Int8ul, "number" / Int64ul))
    monkeypatch.setattr(typed, "compiled", lambda: built(read_Wide=len))
    with pytest.raises(ImportError, match="read_Wide was compiled from other layouts: build the wheel anew"):
        typed.reader(other)


def test_what_a_list_is_made_of_is_in_the_digest() -> None:
    """As the functions that read its elements are called by it."""
    whole = typed.typed_reader(user_message_packet)
    [elements] = whole.calls
    assert elements.name == "read_each_MqfFormatNameElement"
    alone = dataclasses.replace(whole, calls=[])
    assert whole.digest != alone.digest


def test_a_module_that_cannot_be_imported_for_another_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> None:
        raise ModuleNotFoundError("No module named 'construct'", name="construct")

    monkeypatch.setattr(typed, "import_module", lacking)
    with pytest.raises(ModuleNotFoundError, match="construct"):
        typed.compiled.__wrapped__()
