"""Counts which messages are signed and encrypted, and by whom, and what keys prove about them.

A message crosses several hops, and may be sent again. It counts once, judged by the packet that HISTORIES names as its
first.
"""

from __future__ import annotations

from typing import Any, Final

from duckdb import DuckDBPyConnection

from mqproto.captures.pipeline.report.counts.asking import rows
from mqproto.captures.pipeline.report.counts.places import Places
from mqproto.captures.pipeline.report.facts.security import Alike, Secured, Security

SORTS_KEPT: Final = 10_000
"""The maximum number of kinds of messages that are counted separately: strangers may make many certificates."""
_PACKETS: Final = """
create or replace temp view said as
select *, exists (
    from histories where histories.series = packets.series and histories.row_id = packets.row_id) as is_first
from packets
"""
_COUNTS: Final = """
select count(*) filter (security_header) as headed, count(sender_id) as named,
    count(sender_id) filter (signed is null) as claimed, count(signed) as signed, count(encrypted) as encrypted,
    count(signed) filter (encrypted is not null) as both,
    count(security_header) filter (signed is null and encrypted is null) as bare,
    count(*) filter (security_header is null) as unknown, count(signer) filter (verified) as proved,
    count(*) filter (verified) as holding, count(*) filter (not verified) as failing, count(plain_bytes) as opened
from said where is_first
"""
_ALTERED: Final = """
select count(*) filter (not verified and not is_first) as altered,
    count(signature) + count(decryption) > 0 as has_keys
from said where verified is not null or signature is not null or decryption is not null
"""
_ALIKE: Final = """
with alike as (
    select signed as algorithm, true as is_signature, sender_kind, sender_id, verified as holds,
        signer is not null as known, signature as words, count(*) as messages, min(place) as place
    from said where signed is not null and is_first group by all
    union all
    select encrypted, false, null, null, null, false, decryption, count(*), min(place)
    from said where encrypted is not null and is_first group by all
)
select * exclude (place), sum(messages) over () as every from alike
order by holds is not false, messages desc, algorithm, coalesce(sender_id, ''), coalesce(words, ''), place
limit $limit
"""
"""Selects groups of messages: first those whose protection fails, then those with the most messages."""


def security(connection: DuckDBPyConnection) -> Security:
    """Return all counts of protected messages."""
    connection.execute(_PACKETS)
    [counts], [others] = rows(connection, _COUNTS), rows(connection, _ALTERED)
    found = Security(**counts, **others)
    for row in rows(connection, _ALIKE, limit=SORTS_KEPT):
        every = row.pop("every")
        each = Alike(**row)
        (found.signatures if each.is_signature else found.ciphers).append(each)
        found.left_out = every
    found.left_out -= sum(each.messages for each in (*found.signatures, *found.ciphers))
    return found


def secured(hops: list[dict[str, Any]], places: Places) -> Secured | None:
    """Return the security claims of a message on its first hop, and whether any of its signatures is invalid.

    Args:
        hops: the message's rows of HOPS, in their order.
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
