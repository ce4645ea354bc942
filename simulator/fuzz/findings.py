"""What a fuzzer found: kept in groups, each in a file from which one command repeats it.

A finding is two files of one name: `.bin` has the bytes, minimised, for any tool that reads packets; `.toml` says how
they were made, what was seen, and what to type to see it again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqproto.base.errors import UsageError

LONGEST_SLUG: Final = 48


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a parser or a peer.

    group: what kind of fault, and where; two findings of one group are one fault.
    detail: what was seen, in a line.
    data: the bytes that show it; of several packets all of them, one after the other.
    how: all that is needed to repeat it, and what a reader wants to know: words, numbers, and lists of them. Under
        "fuzz" stands who repeats it, `parser` or `peer`.
    """

    group: str
    detail: str
    data: bytes
    how: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its files: the group in a few letters, and enough of a digest to tell it from others."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.group.lower())[:LONGEST_SLUG].strip("-")
        return f"finding-{slug}-{hashlib.sha256(self.group.encode('utf-8', 'replace')).hexdigest()[:6]}"


class Findings:
    """The findings of a run, one of each group, and how often each was met.

    Args:
        folder: where their files go as they are found; None keeps them in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.first: dict[str, Finding] = {}
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.first)

    def knows(self, group: str) -> bool:
        """Whether there is one of this group; if so it is counted, and need not be minimised again."""
        if group not in self.first:
            return False
        self.counts[group] += 1
        return True

    def add(self, finding: Finding) -> None:
        """The first of its group, and at once on disk: a fuzzer may not live to its end."""
        self.first[finding.group] = finding
        self.counts[finding.group] += 1
        if self.folder is not None:
            save(finding, self.folder)

    def close(self) -> None:
        """Write the counts into the files."""
        if self.folder is not None:
            for group, finding in self.first.items():
                save(finding, self.folder, self.counts[group])

    def lines(self) -> list[str]:
        """For people: each finding, how often it was met, and what repeats it."""
        found = []
        for group, finding in self.first.items():
            count = self.counts[group]
            found.append(f"{group}: {finding.detail} ({count:,} {'time' if count == 1 else 'times'})")
            found.append(f"  {shown(finding.data)}")
            if self.folder is not None:
                found.append(f"  repeat with: {command(finding, self.folder)}")
        return found

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "group": group,
                "detail": finding.detail,
                "count": self.counts[group],
                "hex": finding.data.hex(),
                "file": str(file_of(finding, self.folder)) if self.folder is not None else None,
                "how": finding.how,
            }
            for group, finding in self.first.items()
        ]


def shown(data: bytes, limit: int = 40) -> str:
    """How many bytes, and the first of them."""
    more = "..." if len(data) > limit else ""
    return f"{len(data)} bytes: {data[:limit].hex()}{more}" if data else "no bytes at all"


def file_of(finding: Finding, folder: Path) -> Path:
    """The file that `mqproto fuzz repeat` reads."""
    return folder / f"{finding.name}.toml"


def command(finding: Finding, folder: Path) -> str:
    """What to type to see it again."""
    return f"mqproto fuzz repeat {shlex.quote(str(file_of(finding, folder)))}"


def save(finding: Finding, folder: Path, count: int = 1) -> Path:
    """Write both files; the one that repeats it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = file_of(finding, folder)
    path.with_suffix(".bin").write_bytes(finding.data)
    entries = {
        "group": finding.group,
        "detail": finding.detail,
        "count": count,
        "data": path.with_suffix(".bin").name,
    }
    lines = [f"# Repeat with: {command(finding, folder)}".encode("unicode_escape").decode("ascii")]
    lines += [f"{key} = {_toml(value)}" for key, value in entries.items()]
    lines += ["", "[how]", *(f"{key} = {_toml(value)}" for key, value in finding.how.items())]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def load(path: Path) -> Finding:
    """The finding whose `.toml`, or `.bin`, this is.

    Raises:
        UsageError: it is no finding's file, or its other half is missing.
    """
    try:
        entries = tomllib.loads(path.with_suffix(".toml").read_text("utf-8"))
        data = path.with_name(str(entries["data"])).read_bytes()
        return Finding(str(entries["group"]), str(entries["detail"]), data, dict(entries["how"]))
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename} is not there; a finding has a .toml and a .bin beside it"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no finding that a fuzzer wrote: {error}") from None


def _toml(value: object) -> str:
    """TOML's words, numbers, truth values and arrays are JSON's, but for DEL, and for halves of surrogates."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
