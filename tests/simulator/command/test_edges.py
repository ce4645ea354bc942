"""The commands for gateways and triggers, as a person types them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest

from mqproto.simulator.base.program.output import MISUSE
from tests.simulator.typed import COMMAND, in_process, topology_file
from tests.test_readme import Command, console_blocks


def curl(command: Command, port: int) -> str:
    """Send the request of a curl command to another port; return the text of the answer."""
    _, _, body, _, header, url = shlex.split(command.text)
    name, _, value = header.partition(": ")
    return httpx.post(
        url.replace("8080", str(port)), content=body, headers={name: value}, trust_env=False, timeout=60
    ).text


def gateway(file: Path) -> list[str]:
    """Return the command that starts a gateway, which keeps its files next to the topology."""
    place = ("--topology", str(file), "--directory", str(file.parent))
    return [*COMMAND, "gateway", "sender", *place, "--listen", "127.0.0.1:0"]


@pytest.mark.long
def test_what_the_readme_shows_of_the_gateway_is_what_it_says(tmp_path: Path) -> None:
    file = topology_file(tmp_path)
    [[start], requests, [question]] = console_blocks("http-in")
    assert start.text == "mqproto gateway sender"
    with subprocess.Popen(gateway(file), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            said, _, port = process.stdout.readline().decode().rpartition(":")
            assert f"{said}:8080" == start.output
            for request in requests:
                assert without_ordinals(curl(request, int(port))) == without_ordinals(request.output)
            url = question.text.removeprefix("curl ").replace("8080", port.strip())
            answer = httpx.get(url, trust_env=False, timeout=60).text
            assert without_ordinals(answer) == without_ordinals(question.output)
        finally:
            process.terminate()
    assert process.returncode == 0


def without_ordinals(answer: str | None) -> str:
    """Return a text with its ordinals replaced, because MessageIDs may start at any number."""
    return re.sub(r"(?<=\\\\)\d+", "N", answer or "")


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen", "0.0.0.0:80"], "can be reached from outside: `mqproto node`, gateway and"),
        (["--listen", "127.0.0.1:x"], "--listen: '127.0.0.1:x' has no port from 1 to 65535"),
        (["--tokens", "nothing"], "nothing: No such file or directory; name a file with the tokens"),
        (["--history", "oracle://x"], "its URL is sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    done = in_process("gateway", "sender", "-t", topology_file(tmp_path), "-d", tmp_path, *arguments)
    assert done.status == MISUSE
    assert complaint in done.complaint
