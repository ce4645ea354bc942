"""`make samples`, which makes the captures in captures/samples again, each from its TOML file.

    python -m mqproto.simulator.cli.samples captures/samples

The first half of such a file says what the capture shows, and has the command that makes it and, for some captures, a
scenario. Below MARK is what was found in the capture when it was made. This module writes that second half, and a test
compares the capture with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import shlex
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mqproto.base.errors import MqprotoError
from mqproto.captures import spoil
from mqproto.captures.decode import Analyst, Kind
from mqproto.captures.decode.sight import MESSAGES
from mqproto.captures.files.pcap import read_capture
from mqproto.captures.packets import PacketReader
from mqproto.simulator.cli.cli import run_command
from mqproto.simulator.world.scenarios.scenario import from_file
from mqproto.wire import MessageClass

MARK: Final = "# Found in the capture when it was made; `make samples` writes it."
COMMANDS: Final[Mapping[tuple[str, ...], Callable[[list[str]], int]]] = {
    ("mqproto",): run_command,
    ("python", "-m", "mqproto.captures.spoil"): spoil.main,
}
"""The functions that make a sample, keyed by the first words of the sample's command."""
COUNTS: Final = (
    "gap_count",
    "missing_bytes",
    "headless_bytes",
    "refused_bytes",
    "cut_bytes",
    "retransmission_count",
    "early_count",
    "cut_frames",
)
"""The fields of `Totals` that count faults in a capture, not packets; only counts above 0 are written."""


def make_all(folder: Path) -> list[str]:
    """Make every capture of a folder, and write its findings into its TOML file; return the names of the captures.

    A capture that is made from another comes after it.

    Raises:
        MqprotoError: a command failed.
    """
    files = sorted(folder.glob("*.toml"), key=lambda path: ("scenario" not in _read(path), path.name))
    for file in files:
        make(file)
    return [file.stem for file in files]


def make(file: Path) -> None:
    """Make the capture of a TOML file, in the same folder.

    Raises:
        MqprotoError: the command failed.
    """
    capture = file.with_suffix(".pcapng")
    command: str = _read(file)["command"]
    words = shlex.split(command)
    said = io.StringIO()
    with contextlib.chdir(file.parent), contextlib.redirect_stdout(said):
        for beginning, run in COMMANDS.items():
            if tuple(words[: len(beginning)]) == beginning:
                status = run(words[len(beginning) :])
                break
        else:
            raise MqprotoError(f"{file.name}: nobody knows how to run `{command}`")
    if status:
        raise MqprotoError(f"{file.name}: `{command}` ended with status {status}: {said.getvalue()}")
    _write_keys(file)
    told, _, _ = file.read_text("utf-8").partition(MARK)
    file.write_text(f"{told.rstrip()}\n\n{MARK}\n{as_toml(found_in(capture))}", "utf-8")


def _write_keys(file: Path) -> None:
    """Write the keys of a sample, for `mqproto decode --keys`, to the folder NAME.keys.

    A sample without encrypted or signed messages has no keys.
    """
    if "scenario" not in _read(file) or not (scenario := from_file(file)).has_keys:
        return
    from mqproto.simulator.world.node.keys import key_files

    folder = file.with_suffix(".keys")
    folder.mkdir(exist_ok=True)
    for name, data in key_files(scenario).items():
        (folder / name).write_bytes(data)


def found_in(capture: Path) -> dict[str, Any]:
    """Return what a capture contains, as a table for its TOML file.

    messages: the number of messages of applications; each counts once, however often and on however many links it was
        seen.
    packets: the number of packets of each kind.
    acknowledgments: the number of FinalAcks and administration acknowledgments of each class.
    findings: the number of findings of `mqproto decode` with each code.
    """
    reader = PacketReader(read_capture(capture))
    analyst = Analyst()
    kinds: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    messages = set()
    for sight in map(analyst.take, reader):
        kinds[sight.kind] += 1
        findings.update(finding.code for finding in sight.findings)
        message = sight.message
        if message is not None and sight.kind in MESSAGES:
            messages.add((message.user.source_queue_manager, message.user.message_id))
        elif message is not None and sight.kind is not Kind.ORDER_ACK:
            classes[MessageClass(message.properties.message_class).name] += 1
    totals = reader.totals
    last = analyst.finish(
        lossless=not totals.missing_bytes,
        ends=reader.ends,
        translations=reader.translations.found,
        conflicts=totals.conflicts,
    )
    findings.update(finding.code for finding in last)
    found: dict[str, Any] = {
        "sha256": hashlib.sha256(capture.read_bytes()).hexdigest(),
        "size_bytes": capture.stat().st_size,
        "frames": totals.frames,
        "connections": totals.connections,
        "messages": len(messages),
        **{name: count for name in COUNTS if (count := getattr(totals, name))},
        "packets": dict(sorted(kinds.items())),
        "acknowledgments": dict(sorted(classes.items())),
        "findings": dict(sorted(findings.items())),
    }
    return {"found": {name: value for name, value in found.items() if value != {}}}


def as_toml(tables: Mapping[str, Any], above: str = "") -> str:
    """Return tables as TOML; they may contain numbers, texts and further tables."""
    lines = []
    for name, table in tables.items():
        path = f"{above}.{name}" if above else name
        lines.append(f"[{path}]")
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        inner = {key: value for key, value in table.items() if isinstance(value, dict)}
        lines += [
            f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}"
            for key, value in plain.items()
        ]
        lines.append("")
        if inner:
            lines.append(as_toml(inner, path))
    return "\n".join(lines).rstrip() + "\n"


def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text("utf-8"))


if __name__ == "__main__":
    try:
        for name in make_all(Path(sys.argv[1])):
            print(name)
    except MqprotoError as error:
        sys.exit(f"samples: {error}")
