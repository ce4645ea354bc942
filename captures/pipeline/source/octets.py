"""Gathers, checks, compares and spells out the bytes and texts of many packets at once.

Places are vectors of starts and sizes in one array of bytes, such as a mapped file.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mqproto.captures.decode.row import encodable

Octets: TypeAlias = npt.NDArray[np.uint8]
Vector: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

WIDE: Final = np.dtype("<u2")
"""The data type of one code unit of a text on the wire."""
_DIGITS: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
"""The two hexadecimal digits of each byte, as one 16-bit item per byte."""


def windows(data: Octets, at: Vector, size: int) -> Octets:
    """Return the `size` bytes that begin at each place, as one row per place.

    For a place too close to the end of the data, the row holds other bytes of the data. If all of the data is shorter
    than `size`, the rows are zeros.

    Args:
        at: numbers that are at least 0. Rows already refused may have any place, so they need not be removed.
    """
    if not size or len(data) < size:
        return np.zeros((len(at), size), np.uint8)
    # One copy for each row: of an item as large as the window, at any offset.
    items = np.ndarray(len(data) - size + 1, f"V{size}", data, strides=(1,))
    return items[np.minimum(at, len(items) - 1)].view(np.uint8).reshape(-1, size)


def gathered(data: Octets, at: Vector, sizes: Vector) -> Octets:
    """Return the bytes of all places, one after another."""
    order: Any = slice(None)
    ends = at + sizes
    if (at[1:] < ends[:-1]).any():
        order = np.argsort(at, kind="stable")
    first, last = at[order], ends[order]
    if (first[1:] < last[:-1]).any():
        places = zip(at.tolist(), ends.tolist(), strict=True)
        return np.frombuffer(b"".join([data[start:end].data for start, end in places]), np.uint8)
    # Arrow copies fastest from a list of texts: treat the data as one, with gaps and places alternating.
    offsets = np.zeros(2 * len(at) + 1, np.int64)
    offsets[1::2], offsets[2::2] = first, last
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    items = pa.LargeBinaryArray.from_buffers(pa.large_binary(), 2 * len(at), buffers)
    wanted = np.empty(len(at), np.int64)
    wanted[order] = np.arange(1, 2 * len(at), 2)
    picked = items.take(pa.array(wanted))
    total = int(sizes.sum())
    return np.frombuffer(picked.buffers()[2], np.uint8)[:total] if total else np.zeros(0, np.uint8)


def is_terminated(data: Octets, at: Vector, sizes: Vector) -> Mask:
    """Return, for each text, whether its only NUL is at its end; each text has at least one byte."""
    even = sizes & 1 == 0
    units = gathered(data, at[even], sizes[even]).view(WIDE)
    ends = np.cumsum(sizes[even]) // WIDE.itemsize
    nul_count = np.searchsorted(np.flatnonzero(units == 0), ends)
    answer: Mask = even.copy()
    answer[even] = (units[ends - 1] == 0) & (np.diff(nul_count, prepend=0) == 1)
    return answer


def terminated_sizes(data: Octets, at: Vector, sizes: Vector) -> Vector:
    """Return the sizes of the texts at these places, including their first NUL; 0 for those without one.

    Args:
        sizes: the greatest possible size of each text.
    """
    counts = sizes // WIDE.itemsize
    nuls = np.flatnonzero(gathered(data, at, counts * WIDE.itemsize).view(WIDE) == 0)
    ends = np.cumsum(counts)
    following = np.append(nuls, ends[-1:])[np.searchsorted(nuls, ends - counts)]
    return np.where(following < ends, following - (ends - counts) + 1, 0) * WIDE.itemsize


def texts(data: Octets, at: Vector, sizes: Vector) -> pa.Array:
    """Return an Arrow array of texts, each of which ends with its only NUL; the array leaves the NULs out.

    All are decoded together, because a NUL cannot be part of a character of two units.
    """
    text = gathered(data, at, sizes).tobytes().decode("utf-16-le", "surrogatepass")
    spelt = np.frombuffer(encodable(text).encode(), np.uint8)
    is_nul = spelt == 0
    return strings(spelt[~is_nul], np.flatnonzero(is_nul) - np.arange(len(at)))


def hex_texts(octets: Octets) -> pa.Array:
    """Return the bytes of each row as text, like `bytes.hex`."""
    spelt = _DIGITS[octets].view(np.uint8)
    return strings(spelt, np.arange(1, len(spelt) + 1) * spelt.shape[1])


def strings(octets: Octets, ends: Vector) -> pa.Array:
    """Return an Arrow array of texts that are stored one after another, given the end of each."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return pa.StringArray.from_buffers(
        len(ends), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(octets))
    )


def alike(*columns: Vector | Mask | pa.Array) -> tuple[Vector, Vector]:
    """Find the rows that are equal in all columns.

    Args:
        columns: vectors or Arrow arrays, all of the same length.

    Returns:
        A number for each row, counted from 0, that is the same for equal rows; and for each number, one
        of its rows.
    """
    together, width = _codes(columns[0])
    for column in columns[1:]:
        codes, count = _codes(column)
        if width * count > 1 << 62:
            together, width = _codes(together)
        together, width = together * count + codes, width * count
    if len(columns) > 1:
        together, width = _codes(together)
    examples = np.empty(width, np.int64)
    examples[together] = np.arange(len(together))
    return together, examples


def _codes(column: Vector | Mask | pa.Array) -> tuple[Vector, int]:
    encoded = (pa.array(column) if isinstance(column, np.ndarray) else column).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


def fixed(octets: Octets) -> pa.Array:
    """Return an Arrow array with the bytes of each row as one item."""
    kind = pa.binary(octets.shape[1])
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(octets), [None, pa.py_buffer(octets)])


def binaries(data: Octets, at: Vector, sizes: Vector) -> pa.Array:
    """Return an Arrow array with the bytes at each place as one item."""
    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(gathered(data, at, sizes))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(at), buffers)
