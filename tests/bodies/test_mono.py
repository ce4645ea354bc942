"""Our reading and writing of bodies, compared with Mono's System.Messaging.

formatters.cs makes and reads the objects. MQPROTO_BODIES is the number of messages; `make bodies` takes 10,000. The
values that were read are compared, not the bytes: Mono's XML uses LF, and orders attributes differently from .NET's.
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from mqproto.bodies import describe, read_body, to_json, write_body

MESSAGES: Final = int(os.environ.get("MQPROTO_BODIES", "400"))
NEEDED: Final = Path("/usr/lib/mono/gac/Mono.Messaging.RabbitMQ"), Path("/usr/lib/mono/gac/System.Messaging")
PACKAGES: Final = "mono-runtime mono-mcs libmono-system-messaging4.0-cil libmono-messaging-rabbitmq4.0-cil"
FORBIDDEN_IN_XML: Final = ("\x01", "\x19", "\ufffe")
"""Characters that Mono, like .NET, writes as references, but does not read back."""

pytestmark = pytest.mark.skipif(
    not (shutil.which("mono") and shutil.which("mcs") and all(path.exists() for path in NEEDED)),
    reason=f"needs Mono's System.Messaging: apt-get install {PACKAGES}",
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the compiled formatters.cs."""
    compiled = tmp_path_factory.mktemp("mono") / "formatters.exe"
    command = [
        "mcs",
        "-r:System.Messaging.dll",
        f"-out:{compiled}",
        str(Path(__file__).with_name("formatters.cs")),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return compiled


@pytest.fixture(scope="module")
def written(program: Path) -> list[tuple[str, str, int, Any, bytes]]:
    """Return Mono's output: the formatter, class, body type, value and body of each message."""
    seed = random.randrange(2**31)
    print(f"seed {seed}: mono formatters.exe write {seed} {MESSAGES}")
    lines = run(program, "write", str(seed), str(MESSAGES)).splitlines()
    assert len(lines) == MESSAGES
    messages = []
    for line in lines:
        formatter, name, body_type, said, body = line.split("\t")
        messages.append((formatter, name, int(body_type), json.loads(said), base64.b64decode(body)))
    return messages


def without_last_bits(said: Any) -> Any:
    """Return a value in which each number with a decimal point is rounded to 14 digits.

    For one double in 100,000, Mono's format "R" writes 15 digits where 17 are needed.
    """
    if isinstance(said, float):
        return float(f"{said:.14g}")
    if isinstance(said, list):
        return [without_last_bits(each) for each in said]
    if isinstance(said, dict):
        return {name: without_last_bits(each) for name, each in said.items()}
    return said


def with_copies(said: Any, root: Any) -> Any:
    """Return a value in which each reference to another object is replaced by a copy of that object."""
    if isinstance(said, list):
        return [with_copies(each, root) for each in said]
    if not isinstance(said, dict):
        return said
    if said.keys() != {"$again"}:
        return {name: with_copies(each, root) for name, each in said.items()}
    found = root
    for step in said["$again"].split("/")[1:]:
        found = found[int(step) if isinstance(found, list) else step.replace("~1", "/").replace("~0", "~")]
    return with_copies(found, root)


def run(program: Path, *arguments: str, stdin: str = "") -> str:
    # A zone with half an hour, so that local times are not UTC.
    environment = {**os.environ, "TZ": "Asia/Kolkata"}
    done = subprocess.run(
        ["mono", str(program), *arguments],
        input=stdin, env=environment, check=True, capture_output=True, text=True, encoding="utf-8", timeout=240,
    )  # fmt: skip
    return done.stdout


def test_what_mono_writes_says_to_us_what_it_said_to_mono(
    written: list[tuple[str, str, int, Any, bytes]],
) -> None:
    for formatter, name, body_type, said, data in written:
        body = read_body(data, body_type)
        assert (body.kind.partition(":")[0], body.reason) == (formatter, ""), (name, body.reason, data)
        ours = to_json(body.value)
        assert without_last_bits(with_copies(ours, ours)) == without_last_bits(said), (name, data)


def test_what_a_stranger_has_spoilt_is_read_or_shown_as_bytes_and_fits_into_json(
    written: list[tuple[str, str, int, Any, bytes]],
) -> None:
    for _, _, body_type, _, data in written:
        dice = random.Random(data)
        for _ in range(5):
            spoilt = bytearray(data)
            for _ in range(dice.randint(1, 3)):
                at = dice.randrange(len(spoilt))
                spoilt[at : at + dice.randint(0, 3)] = dice.choice(
                    (dice.randbytes(2), data[-9:], b"\xff" * 4, b"")
                )
            body = read_body(bytes(spoilt), body_type)
            assert body.kind != "bytes" or body.value == spoilt
            json.dumps(describe(body), allow_nan=False, ensure_ascii=False).encode()


def test_what_we_write_says_to_mono_what_it_says_to_us(
    program: Path, written: list[tuple[str, str, int, Any, bytes]]
) -> None:
    asked, expected = [], []
    for formatter, name, body_type, said, data in written:
        if formatter != "xml" or any(json.dumps(char)[1:-1] in json.dumps(said) for char in FORBIDDEN_IN_XML):
            continue
        body = read_body(data, body_type)
        ours, our_type = write_body(body.value, body.kind)
        assert our_type == body_type
        asked.append(f"{name}\t{base64.b64encode(ours).decode()}\n")
        expected.append((name, said, ours))
    answers = run(program, "read", stdin="".join(asked)).splitlines()
    assert len(expected) > MESSAGES / 4
    for answer, (name, said, ours) in zip(answers, expected, strict=True):
        assert without_last_bits(json.loads(answer)) == without_last_bits(said), (name, ours)
