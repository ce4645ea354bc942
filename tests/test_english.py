"""English that readers stumble over: patterns that can be matched, and sentences that are too long to keep in mind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from tests.conformance import ROOT, load
from tests.proportion import files

PATTERNS: Final = {
    r"(?<!here )\b(is|are|was|were) no (?!longer|more|less|larger|lower|older|matter)": "is not a",
    r"\b(he|his|him|himself)\b": "they; it",
    r"\b[Ss]ome (?=\d|two|three|four|five|six|ten|twenty|fifty|hundred|thousand)": "about",
    r"\b([Ss]ays?|[Ss]aid|[Tt]ells?|[Tt]old|known) of\b": "about",
    r"\b(stands?|stood) (in|at|behind|beside|there|below|above|under|after)\b": "is in",
    r"\b(for|to|by|than) who\b|\bnodes? that runs?\b": "for those who; running nodes",
    r"\b(cannot|is|are|is to|are to) be had\b": "is not available",
    r"\bby half\b|\bwholly or not\b": "half written; complete or absent",
    r"[;,] how (many|much|long)\.|\bso (many|much)[.,;]": "return the number",
    r"\bthose of (it|them) that\b|\bthose there\b|\b[Tt]he same of\b": "those that; the same for",
    r"\bor the like\b|\b(comes?|came) to be\b|\botherwise than\b": "or another; became; differently",
}
"""English that must not be written, as regular expressions, each with a better form."""
SUBJECT: Final = {
    r"(?:^|(?<=[.:!] ))(What|Who|Whoever) [^?]*?[.;]": "a noun as the subject",
    r"\ball that (is|was|may|can|has|have|it|they)\b|\bin the place of\b|\banew\b": "everything; instead of; again",
    r"\bone's own\b|\bat odds with\b|\bof (a|an) \w+'s own\b": "your own; contradicts",
}
"""Additional patterns that Markdown must not have; docstrings may use them.

The first pattern does not match questions.
"""
ALLOWED: Final = r"is no (exception|connection|business|use)|some two|What (changed|there is)|stands in pages"
"""Exceptions to the patterns. The last one is a text in the tables of a store, which never changes."""
LONG: Final = 30
"""How many words a sentence of Markdown may have, as a rule."""
LONG_ONES: Final = 6
"""How many longer sentences there may be. This number may only fall."""


def markdown() -> Iterator[tuple[str, str]]:
    """Yield the paragraphs, items and cells of all Markdown, and the answers of the readings.

    Code and addresses are left out.
    """
    yield from (("conformance.toml", each["answer"]) for each in load()["reading"])
    for name in files():
        if name.endswith(".md"):
            text = (ROOT / name).read_text("utf-8")
            prose = re.sub(r"^( *)(```+|~~~+).*?^ *\2$", "", text, flags=re.M | re.S)
            prose = re.sub(r"`[^`]*`", "X", re.sub(r"\]\([^)]*\)", "]", prose))
            for part in re.split(r"\n\s*\n|\n(?=\s*[-*#|\d])|\|", prose):
                yield name, " ".join(part.split())


def texts() -> Iterator[tuple[str, str]]:
    """Yield docstrings, help, errors, and all other texts of the product."""
    for name in files():
        if name.endswith(".py") and not name.startswith("tests/"):
            for node in ast.walk(ast.parse((ROOT / name).read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{name}:{node.lineno}", " ".join(re.sub(r"`[^`]*`", "X", node.value).split())


def found(where: str, text: str, further: dict[str, str]) -> list[str]:
    text = re.sub(ALLOWED, "", text)
    patterns = (PATTERNS | further).items()
    return [f"{where}: {each[0]}: {better}" for no, better in patterns for each in re.finditer(no, text)]


def test_nobody_writes_what_readers_stumble_over() -> None:
    assert [place for where, text in markdown() for place in found(where, text, SUBJECT)] == []
    assert [place for where, text in texts() for place in found(where, text, {})] == []


def test_sentences_of_markdown_are_short() -> None:
    sentences = ((name, each) for name, text in markdown() for each in re.split(r"(?<=[.!?]) ", text))
    long = [(name, each) for name, each in sentences if len(each.split()) > LONG]
    assert len(long) <= LONG_ONES, "\n".join(f"{name}: {each}" for name, each in long)
