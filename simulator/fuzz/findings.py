"""The findings of a fuzzer, in groups. One command repeats a finding from its file.

A finding is two files with the same name: `.bin` has the minimized bytes, for any tool that reads packets; `.toml` says
how they were made, what was seen, and which command shows it again.
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
class FuzzFinding:
    """One fault of a parser or a peer.

    group: the kind of fault, and its place. Two findings in the same group are considered the same fault.
    detail: what was seen, in one line.
    data: the bytes that show the fault; several packets are concatenated.
    how: everything that is needed to repeat and to understand the finding, as words, numbers, and lists of these.
        "fuzz" names the fuzzer that repeats it, `parser` or `peer`.
    """

    group: str
    detail: str
    data: bytes
    how: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the finding's files: a short form of the group, and a digest that makes it unique."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.group.lower())[:LONGEST_SLUG].strip("-")
        return f"finding-{slug}-{hashlib.sha256(self.group.encode('utf-8', 'replace')).hexdigest()[:6]}"


class Findings:
    """The findings of a run: one of each group, and the number of times that each has occurred.

    Args:
        folder: the folder for the files of the findings, which are written as the findings are made; None to keep the
            findings in memory.

    Raises:
        UsageError: the folder is a file.
    """

    def __init__(self, folder: Path | None = None) -> None:
        if folder is not None and folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file; name a folder for findings")
        self.folder = folder
        self.first: dict[str, FuzzFinding] = {}
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.first)

    def knows(self, group: str) -> bool:
        """Return whether there is already a finding in this group.

        If so, count it; it need not be minimized again.
        """
        if group not in self.first:
            return False
        self.counts[group] += 1
        return True

    def add(self, finding: FuzzFinding) -> None:
        """Add the first finding of a group, and save it at once, because a fuzzer may be killed before its end."""
        self.first[finding.group] = finding
        self.counts[finding.group] += 1
        if self.folder is not None:
            save(finding, self.folder)

    def close(self) -> None:
        """Write into the files how often each finding has occurred."""
        if self.folder is not None:
            for group, finding in self.first.items():
                save(finding, self.folder, self.counts[group])

    def lines(self) -> list[str]:
        """Return lines with each finding, how often it occurred, and the command that repeats it."""
        found = []
        for group, finding in self.first.items():
            count = self.counts[group]
            found.append(f"{group}: {finding.detail} ({count:,} {'time' if count == 1 else 'times'})")
            found.append(f"  {shown(finding.data)}")
            if note := finding.how.get("note"):
                found.append(f"  {note}")
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
    """Return the number of bytes, and the first bytes in hex."""
    more = "..." if len(data) > limit else ""
    return f"{len(data)} bytes: {data[:limit].hex()}{more}" if data else "no bytes at all"


def file_of(finding: FuzzFinding, folder: Path) -> Path:
    """Return the path of the file that `mqproto fuzz repeat` reads."""
    return folder / f"{finding.name}.toml"


def command(finding: FuzzFinding, folder: Path) -> str:
    """Return the command that repeats a finding."""
    return f"mqproto fuzz repeat {shlex.quote(str(file_of(finding, folder)))}"


def save(finding: FuzzFinding, folder: Path, count: int = 1) -> Path:
    """Write both files of a finding; return the path of the file that repeats it."""
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


def load(path: Path) -> FuzzFinding:
    """Return the finding that has this `.toml` or `.bin` file.

    Raises:
        UsageError: this is not the file of a finding, or the other file is missing.
    """
    try:
        entries = tomllib.loads(path.with_suffix(".toml").read_text("utf-8"))
        data = path.with_name(str(entries["data"])).read_bytes()
        return FuzzFinding(str(entries["group"]), str(entries["detail"]), data, dict(entries["how"]))
    except FileNotFoundError as error:
        raise UsageError(
            f"{error.filename} is not there; a finding has a .toml and a .bin beside it"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is not a finding that a fuzzer wrote: {error}") from None


def _toml(value: object) -> str:
    """Return a value as TOML.

    Strings, numbers, booleans and arrays are as in JSON, except for DEL and lone surrogates.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
