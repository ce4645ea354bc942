"""Who signed and encrypted what, and what keys say of it.

A message crosses several hops, and may be sent again: it counts once, by the packet that HISTORIES names as its first.
Which packets these are is kept as one bit for each row of a series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mqproto.captures.pipeline.report.counts.places import Places
from mqproto.captures.pipeline.report.counts.scanning import batches, grouped, integers
from mqproto.captures.pipeline.report.facts.security import Alike, Secured, Security
from mqproto.captures.pipeline.source.records import Integers
from mqproto.captures.pipeline.tables.tables import Tables

SORTS_KEPT: Final = 10_000
"""How many sorts of messages are told apart: strangers may make any number of certificates."""
OTHERS: Final = (None,)
_PLACE: Final = ("series", "row_id")
_COLUMNS: Final = (*_PLACE, "security_header", "plain_bytes", *Secured._fields)
_SIGNATURE: Final = ["signed", "sender_kind", "sender_id", "verified", "signer", "signature"]
_CIPHER: Final = ["encrypted", "decryption"]


class Firsts:
    """Which rows of packets are the first of a message."""

    def __init__(self, tables: Tables) -> None:
        self._bits: dict[str | None, Any] = {}
        for batch in batches(tables, "histories", _PLACE):
            row_ids, known = integers(batch.column("row_id"))
            for (series,), places in grouped(batch, ("series",)):
                self._add(series, row_ids[places][known[places]])

    def _add(self, series: str | None, row_ids: Integers) -> None:
        if not len(row_ids):
            return
        bits = self._bits.get(series, np.zeros(0, dtype=np.uint8))
        size = int(row_ids.max()) // 8 + 1
        if size > len(bits):
            bits = np.concatenate([bits, np.zeros(max(size, 2 * len(bits)) - len(bits), dtype=np.uint8)])
        np.bitwise_or.at(bits, row_ids // 8, (1 << row_ids % 8).astype(np.uint8))
        self._bits[series] = bits

    def among(self, batch: pa.RecordBatch) -> Any:
        """Which rows of a batch are such: flags."""
        row_ids, known = integers(batch.column("row_id"))
        found = np.zeros(batch.num_rows, dtype=np.bool_)
        for (series,), places in grouped(batch, ("series",)):
            bits = self._bits.get(series)
            if bits is not None:
                asked = row_ids[places]
                is_within = known[places] & (asked // 8 < len(bits))
                asked = np.where(is_within, asked, 0)
                is_set = bits[asked // 8] & (1 << asked % 8).astype(np.uint8)
                found[places] = is_within & (is_set > 0)
        return found


def security(tables: Tables) -> Security:
    """All of it."""
    found = Security()
    alike: Counter[tuple[Any, ...]] = Counter()
    firsts = Firsts(tables)
    for batch in batches(tables, "packets", _COLUMNS):
        is_first = firsts.among(batch)
        headed, holds = _flags(batch, "security_header"), _flags(batch, "verified")
        fails = _flags(batch, "verified", of=False)
        signed, encrypted, named, signer, opened, checked = (
            batch.column(name).is_valid().to_numpy(zero_copy_only=False)
            for name in ("signed", "encrypted", "sender_id", "signer", "plain_bytes", "signature")
        )
        is_known = batch.column("security_header").is_valid().to_numpy(zero_copy_only=False)
        counts = {
            "headed": headed,
            "named": named,
            "claimed": named & ~signed,
            "signed": signed,
            "encrypted": encrypted,
            "both": signed & encrypted,
            "bare": is_known & ~signed & ~encrypted,
            "unknown": ~is_known,
            "proved": holds & signer,
            "holding": holds,
            "failing": fails,
            "opened": opened,
        }
        for name, flags in counts.items():
            setattr(found, name, getattr(found, name) + int((flags & is_first).sum()))
        found.altered += int((fails & ~is_first).sum())
        found.has_keys |= bool(checked.any() or batch.column("decryption").null_count < batch.num_rows)
        _tell_apart(batch.filter(pa.array(is_first & (signed | encrypted))), alike)
    known = [(Alike(*key), count) for key, count in alike.items() if key[0] is not None]
    for each, count in known:
        each.messages = count
    found.left_out = alike.get(OTHERS, 0)
    found.signatures = _sorted(each for each, _ in known if each.is_signature)
    found.ciphers = _sorted(each for each, _ in known if not each.is_signature)
    return found


def _flags(batch: pa.RecordBatch, name: str, *, of: bool = True) -> Any:
    """Where a column has that value; null is neither."""
    return pc.fill_null(pc.equal(batch.column(name), of), False).to_numpy(zero_copy_only=False)


def _tell_apart(batch: pa.RecordBatch, alike: Counter[tuple[Any, ...]]) -> None:
    """Count those of which the same is to be said; of too many sorts, the later ones are counted as one."""
    for rows in (batch.select(_SIGNATURE), batch.select(_CIPHER)):
        table = pa.Table.from_batches([rows]).filter(rows.column(0).is_valid())
        for row in table.group_by(rows.schema.names).aggregate([([], "count_all")]).to_pylist():
            key = _signature(row) if "signed" in row else _cipher(row)
            alike[key if key in alike or len(alike) < SORTS_KEPT else OTHERS] += row["count_all"]


def _signature(row: dict[str, Any]) -> tuple[Any, ...]:
    kind, sender, words = (row[name] for name in ("sender_kind", "sender_id", "signature"))
    return row["signed"], True, kind, sender, row["verified"], row["signer"] is not None, words


def _cipher(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["encrypted"], False, None, None, None, False, row["decryption"]


def _sorted(alike: Iterable[Alike]) -> list[Alike]:
    """What fails first, then what most messages have."""
    return sorted(
        alike,
        key=lambda each: (
            each.holds is not False,
            -each.messages,
            each.algorithm,
            each.sender_id or "",
            each.words or "",
        ),
    )


def secured(hops: list[dict[str, Any]], places: Places) -> Secured | None:
    """What a message says on its first hop; that its signature does not hold, if that is so of any.

    Args:
        hops: of it, as HOPS has them, in their order.
    """
    said: Secured | None = None
    for hop in hops:
        seen = places.packet(hop["series"], hop["number"])
        if seen is None or seen.secured is None:
            continue
        if said is None:
            said = seen.secured
        elif seen.secured.verified is False and said.verified is not False:
            where = f"{seen.secured.signature or ''}, from {hop['from_label']} to {hop['to_label']}"
            said = said._replace(verified=False, signer=None, signature=where)
    return said
