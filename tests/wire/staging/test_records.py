"""Records with an `__init__` that a compiler sees: the same records, in as many lines."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mqproto.wire import NULL_GUID, PrivateQueueFormatName, TxSequenceId, decode_packet
from mqproto.wire.generator.staging.records import FUTURE, with_inits
from mqproto.wire.layouts.user import UserHeader
from simulator.base.program.build import COMPILED, build
from tests.conformance import ROOT
from tests.examples import EVERY_PACKET

MODULES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mqproto"]["compiled"]
HEAD = "from __future__ import annotations\nfrom dataclasses import dataclass, field\n\n"
RECORDS = '''
@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where."""

    queue: int
    position: int = 1
    padding: bytes = field(default=b"", compare=False)


@dataclass(slots=True)
class Flags:
    flags: int = 0
    names: list[str] = field(default_factory=list)

    first = Bit(0)
    rest = Bits(1, 3)


@dataclass(frozen=True, kw_only=True)
class More(Place):
    more: int = 0


class Plain:
    value: int = 0

'''


def of_source(source: str) -> dict[str, Any]:
    """What a module has, in which bits have no meaning."""
    # dataclass() looks into the module for what is a ClassVar.
    names: dict[str, Any] = {
        "Bit": lambda *places: places,
        "Bits": lambda *places: places,
        "__name__": __name__,
    }
    exec(compile(source, "a module", "exec"), names)
    return names


def prepared() -> dict[str, Any]:
    """What the prepared module has. Its frozen fields may be set: an interpreter lets nobody, a compiler does."""
    return of_source(with_inits(HEAD + RECORDS).replace("frozen=True", "unsafe_hash=True"))


def by_interpreter(kind: Any) -> bool:
    """Whether dataclass() has written the `__init__`."""
    code = getattr(kind.__init__, "__code__", None)
    return code is not None and code.co_filename == "<string>"


def test_a_record_has_an_init_of_its_own_that_does_the_same() -> None:
    before, after = of_source(HEAD + RECORDS), prepared()
    some: list[tuple[str, dict[str, Any]]] = [
        ("Place", {"queue": 7}),
        ("Place", {"queue": 7, "position": 3, "padding": b"x"}),
        ("Flags", {}),
        ("Flags", {"flags": 3, "names": ["a"]}),
    ]
    for name, given in some:
        made, other = before[name](**given), after[name](**given)
        assert dataclasses.asdict(made) == dataclasses.asdict(other)
        assert repr(made) == repr(other)
    assert after["Flags"]().names is not after["Flags"]().names
    empty: list[str] = []
    assert after["Flags"](names=empty).names is empty
    with pytest.raises(TypeError):
        after["Place"](7)  # It is by name alone, as before.
    assert [by_interpreter(before[name]) for name in ("Place", "Flags", "More")] == [True, True, True]
    assert [by_interpreter(after[name]) for name in ("Place", "Flags")] == [False, False]


def test_a_frozen_record_is_compared_and_hashed_as_before() -> None:
    made = prepared()
    place, more = made["Place"], made["More"]
    assert place(queue=7) == place(queue=7, padding=b"x")
    assert hash(place(queue=7)) == hash(place(queue=7, padding=b"x"))
    assert place(queue=7) != place(queue=8)
    assert place(queue=7) != more(queue=7)
    assert place(queue=7) != 7


@pytest.mark.parametrize("packet", EVERY_PACKET)
def test_a_packet_is_copied_and_pickled_on_both_builds(packet: bytes) -> None:
    """Spark keeps some of what is in packets, and pickles it."""
    record = decode_packet(packet)
    for other in (copy.deepcopy(record), copy.copy(record), pickle.loads(pickle.dumps(record))):
        assert dataclasses.astuple(other) == dataclasses.astuple(record)
        assert other is not record


def test_a_record_of_the_wire_does_the_same_on_both_builds() -> None:
    name = PrivateQueueFormatName(NULL_GUID, 7)
    assert (
        repr(name)
        == f"PrivateQueueFormatName(source_queue_manager={NULL_GUID!r}, private_queue_identifier=7)"
    )
    assert {name: 1}[PrivateQueueFormatName(NULL_GUID, private_queue_identifier=7)] == 1
    assert dataclasses.replace(name, private_queue_identifier=8) != name
    assert TxSequenceId(time_stamp=1, ordinal=9) < TxSequenceId(time_stamp=2, ordinal=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        name.private_queue_identifier = 8  # type: ignore[misc]
    with pytest.raises(AttributeError):
        UserHeader().private_queue_identifier = 8  # type: ignore[attr-defined]
    assert by_interpreter(UserHeader) == (build() != COMPILED)


def test_names_of_bits_are_of_the_class_and_no_fields() -> None:
    flags = prepared()["Flags"]
    assert [field.name for field in dataclasses.fields(flags)] == ["flags", "names"]
    assert (flags.first, flags.rest) == ((0,), (1, 3))
    assert not {"first", "rest"} & {*vars(flags)}, "its base has them"


def test_what_derives_from_a_record_of_its_module_sets_that_ones_fields_too() -> None:
    one = prepared()["More"](queue=7, more=3)
    assert (one.queue, one.position, one.more) == (7, 1, 3)


@pytest.mark.parametrize(
    "untouched",
    [
        "class Plain:\n    value: int\n\n",
        "@dataclass\nclass Empty:\n    pass\n\n",
        "@dataclass\nclass Own:\n    value: int\n\n    def __init__(self) -> None:\n        self.value = 1\n\n",
        "@dataclass\nclass Late:\n    value: int\n\n    def __post_init__(self) -> None: ...\n\n",
        "@dataclass\nclass Far(elsewhere.Base):\n    value: int\n\n",
        "@dataclass\nclass Unknown(Base):\n    value: int\n\n",
        "@other\nclass Decorated:\n    value: int\n\n",
    ],
)
def test_what_is_no_record_of_fields_alone_stays_as_it_is(untouched: str) -> None:
    assert with_inits(untouched) == untouched


def test_what_is_of_the_class_alone_is_no_argument() -> None:
    source = "@dataclass\nclass One:\n    limit: ClassVar[int] = 3\n    value: int\n\n"
    assert "def __init__(self, value: int) -> None: self.value = value" in with_inits(source)
    assert "limit: ClassVar[int] = 3" in with_inits(source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("@dataclass\nclass One:\n    value: int\nprint(One)\n", "class One ends in line 3"),
        ("@dataclass\nclass One:\n    value: int", "class One ends in line 3"),
        (
            f"{FUTURE}\n@dataclass\nclass One:\n    first = Bit(0)\n    value: int\n\n",
            "line 3 is no 'class One:'",
        ),
    ],
)
def test_where_there_is_no_room_it_is_said(source: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        with_inits(source)


@pytest.mark.parametrize("module", MODULES)
def test_no_line_of_a_module_moves(module: str) -> None:
    """Tracebacks show the source as it is, by the lines of what was compiled."""
    source = Path(ROOT, module).read_text("utf-8")
    prepared = with_inits(source)
    compile(prepared, module, "exec")
    lines, changed = source.split("\n"), prepared.split("\n")
    assert len(changed) == len(lines)
    for line, now in zip(lines, changed, strict=True):
        assert line == now or not line or line.startswith(("class ", "from __future__")) or " = Bit" in line
