"""Who signed and encrypted messages, how strong that is, and what keys at hand say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from mqproto.captures.pipeline.report.drawing.markup import marks, table
from mqproto.captures.pipeline.report.facts.facts import Facts
from mqproto.captures.pipeline.report.facts.security import Alike, Mark, Security, why_weak
from mqproto.captures.pipeline.report.facts.words import counted, escaped, share

LISTED: Final = 20
"""How many of each table."""


def security(facts: Facts) -> Iterator[str]:
    """Nothing where no message says anything of it."""
    found, in_all = facts.security, facts.messages.count
    if not found.is_there:
        return
    yield '<section id="security"><h2>Signatures and encryption</h2>'
    yield (
        "<p>Each message counts once, as it was first seen. That it has a SecurityHeader, or names its sender, proves "
        "nothing: a signature that holds does, by a certificate or key that was at hand.</p>"
    )
    yield from table(
        ("of the messages", ">count", ">share"),
        ((what, f"{count:,}", share(count, in_all)) for what, count in _counts(found)),
    )
    yield from _remarks(found)
    if found.signatures:
        yield "<h3>Who signed</h3>"
        heads = ("~signed with", ">messages", "what keys say", "sender, as the message has it")
        rows = (_signature_row(each, facts.routes.labels) for each in found.signatures[:LISTED])
        yield from table(heads, rows, _of_all(found.signatures))
    if found.ciphers:
        yield "<h3>How bodies are encrypted</h3>"
        rows = (_cipher_row(each) for each in found.ciphers[:LISTED])
        yield from table(("~cipher", ">messages", "what keys say"), rows, _of_all(found.ciphers))
    if found.left_out:
        yield f"<p>And {counted(found.left_out, 'message')} of other sorts, of which there are too many.</p>"
    yield "</section>"


def _counts(found: Security) -> Iterator[tuple[str, int]]:
    yield "have a SecurityHeader", found.headed
    yield "name their sender in it", found.named
    if found.claimed:
        yield "name one, and are not signed: anybody can write that", found.claimed
    yield "are signed", found.signed
    if found.has_keys and found.signed:
        yield "signed, and proved by a key or certificate at hand", found.proved
        yield "signed, and it holds; nobody at hand vouches for the certificate", found.holding - found.proved
        fails = "signed, and it does not hold"
        yield f'<span class="bad">{fails}</span>' if found.failing else fails, found.failing
        if unchecked := found.signed - found.holding - found.failing:
            yield "signed, and it could not be checked", unchecked
    yield "are encrypted", found.encrypted
    if found.has_keys and found.encrypted:
        yield "encrypted, and opened with a key at hand", found.opened
    if found.both:
        yield "are both signed and encrypted", found.both
    yield "are neither", found.bare
    if found.unknown:
        yield "were captured in part, so that nobody can say", found.unknown


def _remarks(found: Security) -> Iterator[str]:
    if found.failing or found.altered:
        copies = ""
        if found.altered:
            copies = (
                f" So {'does' if found.altered == 1 else 'do'} {counted(found.altered, 'further packet')}."
            )
        said = (
            ""
            if not found.failing
            else f"Of {counted(found.failing, 'message')} the signature does not hold."
        )
        yield (
            f'<p><span class="tag bad">fails</span> {said}{copies} Each is one of the '
            '<a href="#findings">findings</a>, bad-signature, with the frame that shows it.</p>'
        )
    for algorithm, count in found.weak().items():
        yield (
            f'<p><span class="tag open">weak</span> {counted(count, "message")} with {escaped(algorithm)}: '
            f"{why_weak(algorithm)}.</p>"
        )
    if (found.signed or found.encrypted) and not found.has_keys:
        yield (
            "<p>No keys were at hand, so no signature was checked and no body opened. <code>mqproto analyse CAPTURES "
            "--keys KEYS --out DIR</code> does both, into a folder of its own.</p>"
        )


def _of_all(alike: list[Alike]) -> str:
    if len(alike) <= LISTED:
        return ""
    return f"The first {LISTED} of {len(alike):,}: those that fail, then those of most messages."


def _signature_row(each: Alike, labels: Mapping[str, str]) -> Iterator[str]:
    yield _algorithm(each)
    yield f"{each.messages:,}"
    verdict = "" if each.holds is None else f"{marks([_verdict(each)])} "
    yield verdict + escaped(each.said)
    sender = "nobody" if each.sender_id is None else f"{each.sender_kind or ''} {each.sender_id}".strip()
    called = labels.get(each.sender_id or "", "")
    yield escaped(sender) + (f'<br><span class="faint">{escaped(called)}</span>' if called else "")


def _verdict(each: Alike) -> Mark:
    if not each.holds:
        return Mark("bad", "fails")
    return Mark("good", "proved") if each.known else Mark("open", "not proved")


def _cipher_row(each: Alike) -> Iterator[str]:
    yield _algorithm(each)
    yield f"{each.messages:,}"
    yield escaped(each.said)


def _algorithm(each: Alike) -> str:
    weak = f" {marks([Mark('open', 'weak')])}" if why_weak(each.algorithm) else ""
    return escaped(each.algorithm) + weak
