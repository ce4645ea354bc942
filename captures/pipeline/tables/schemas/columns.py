"""Tables described by texts, of which schemas are made."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

FINDING: Final = pa.struct(
    [("severity", pa.string()), ("code", pa.string()), ("text", pa.string()), ("section", pa.string())]
)
TYPES: Final[dict[str, pa.DataType]] = {
    "text": pa.string(),
    "texts": pa.list_(pa.string()),
    "integer": pa.int64(),
    "integers": pa.list_(pa.int64()),
    "short": pa.int32(),
    "flag": pa.bool_(),
    "time": pa.timestamp("us", "UTC"),
    "counts": pa.map_(pa.string(), pa.int64()),
    "findings": pa.list_(FINDING),
}
"""By the words of the texts. None of the numbers is unsigned, as Delta Lake has none that are."""
CODED: Final = pa.dictionary(pa.int32(), pa.string())
"""Texts as numbers, by a dictionary: so they are compared, sorted, moved and written in half the time."""
REPEATED: Final = frozenset(
    {
        "series",
        "file",
        "frame_file",
        "kind",
        "class_name",
        "delivery",
        "source_address",
        "destination_address",
        "source_manager",
        "destination_manager",
        "queue",
        "admin_queue",
        "response_queue",
        "queue_name",
        "sequence",
        "ack_sequence",
        "source",
        "destination",
        "from_key",
        "to_key",
        "from_label",
        "to_label",
        "whereabouts",
        "sender_kind",
        "sender_id",
        "signed",
        "encrypted",
        "signer",
        "signature",
        "decryption",
    }
)
"""Columns of texts that packets have in common, in whatever table: rows have them as CODED until they are written."""
UNITS: Final = {
    "_ns": "nanoseconds",
    "_ms": "milliseconds",
    "_s": "seconds",
    "_bytes": "bytes",
    "_ppb": "billionths",
}
"""By the ends of names, which say it; times since 1970 are UTC."""
_COLUMN: Final = re.compile(r"(?P<names>\w+(?:, \w+)*) +(?P<kind>[a-z]+)(?: +(?P<meaning>.*))?")


class Column(NamedTuple):
    """One column; unit: "" if it has none."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str

    @property
    def comment(self) -> str:
        """What Delta Lake says of it."""
        return f"{self.meaning} [{self.unit}]" if self.unit else self.meaning


@dataclass(frozen=True, slots=True)
class Table:
    """A table. about: what a row of it is, and what holds of it as a whole."""

    about: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """As rows have the columns on their way to it."""
        return schema_of(self.columns)

    @property
    def written(self) -> pa.Schema:
        """As whoever reads it has them."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def commented(self) -> pa.Schema:
        """The same, with what each column means."""
        return pa.schema(
            [
                pa.field(column.name, column.type, metadata={"comment": column.comment})
                for column in self.columns
            ]
        )


def schema_of(every: Iterable[Column]) -> pa.Schema:
    """Columns as rows have them."""
    return pa.schema([(column.name, type_of(column.name, column.type)) for column in every])


def type_of(name: str, kind: pa.DataType) -> pa.DataType:
    """What rows have a column of a type as."""
    return CODED if name in REPEATED and kind == TYPES["text"] else kind


def columns(text: str, **blanks: Any) -> tuple[Column, ...]:
    """Columns by a text: a line for each, with names, the word for the type, and what they mean; more of that follows
    on lines that are indented further.

    Args:
        blanks: what is put in the place of names in braces.
    """
    lines: list[str] = []
    for line in text.strip("\n").splitlines():
        if line.startswith("    ") and lines:
            lines[-1] += f" {line.strip()}"
        elif line.strip():
            lines.append(line.format(**blanks).strip() if blanks else line.strip())
    return tuple(column for line in lines for column in _columns(line))


def _columns(line: str) -> list[Column]:
    found = _COLUMN.fullmatch(line)
    assert found, line
    kind, meaning = TYPES[found["kind"]], found["meaning"] or ""
    return [Column(name, kind, _unit(name, kind), meaning) for name in found["names"].split(", ")]


def _unit(name: str, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "microseconds"
    if kind not in (TYPES["integer"], TYPES["short"], TYPES["integers"]):
        return ""
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
