"""Textual descriptions of tables, from which schemas are made."""

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
"""The types of columns, keyed by the words for them in the textual descriptions.

All integers are signed, because Delta Lake has no unsigned types.
"""
CODED: Final = pa.dictionary(pa.int32(), pa.string())
"""The type of strings that are stored as indexes into a dictionary.

They take half as long as plain strings to compare, sort, move and write.
"""
REPEATED: Final = frozenset(
    {
        *("series", "file", "frame_file", "kind", "class_name", "delivery", "source_address"),
        *("destination_address", "source_manager", "destination_manager", "queue", "admin_queue"),
        *("response_queue", "queue_name", "sequence", "ack_sequence", "source", "destination"),
        *("from_key", "to_key", "from_label", "to_label", "whereabouts", "sender_kind", "sender_id"),
        *("signed", "encrypted", "signer", "signature", "decryption"),
    }
)
"""The names of string columns, in any table, whose values are shared by many packets.

Until their rows are written, these columns are CODED.
"""
UNITS: Final = {
    "_ns": "nanoseconds",
    "_ms": "milliseconds",
    "_s": "seconds",
    "_bytes": "bytes",
    "_ppb": "billionths",
}
"""The units of columns, keyed by the endings of the columns' names; times since 1970 are UTC."""
_COLUMN: Final = re.compile(r"(?P<names>\w+(?:, \w+)*) +(?P<kind>[a-z]+)(?: +(?P<meaning>.*))?")


class Column(NamedTuple):
    """One column of a table.

    unit: its unit; "" if it has none.
    """

    name: str
    type: pa.DataType
    unit: str
    meaning: str

    @property
    def comment(self) -> str:
        """The column's comment in Delta Lake."""
        return f"{self.meaning} [{self.unit}]" if self.unit else self.meaning


@dataclass(frozen=True, slots=True)
class Table:
    """The description of a table.

    about: what a row is, and what holds for the table as a whole.
    """

    about: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows before they are written to the table."""
        return schema_of(self.columns)

    @property
    def written(self) -> pa.Schema:
        """The columns as readers see them."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    @property
    def commented(self) -> pa.Schema:
        """The columns as readers see them, with the meaning of each."""
        return pa.schema(
            [
                pa.field(column.name, column.type, metadata={"comment": column.comment})
                for column in self.columns
            ]
        )


def schema_of(every: Iterable[Column]) -> pa.Schema:
    """Return the schema that columns have on their way to a table."""
    return pa.schema([(column.name, type_of(column.name, column.type)) for column in every])


def type_of(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has on its way to a table."""
    return CODED if name in REPEATED and kind == TYPES["text"] else kind


def columns(text: str, **blanks: Any) -> tuple[Column, ...]:
    """Parse columns from a text.

    Each line has the names of some columns, the word for their type, and their meaning, which may continue on lines
    that are indented further.

    Args:
        blanks: replacements for names in braces.
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
