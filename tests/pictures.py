"""The pictures of the front page: `make pictures` generates them again, and test_pictures.py shows when that is due.

The same capture always gives the same ladder, byte for byte. Screenshots of the same page may differ, so each contains
the digest of the page that it shows.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import tempfile
import time
import zlib
from pathlib import Path
from typing import Final

from mqproto.simulator.console.front import page
from tests.chromium import Chromium, chromium
from tests.conformance import ROOT
from tests.simulator.typed import COMMAND, in_process

FOLDER: Final = ROOT / ".github" / "pictures"
LADDER: Final = FOLDER / "ladder.svg"
CONSOLE: Final = FOLDER / "console.png"
SAMPLE: Final = "captures/samples/intermediate-killed.pcapng"
WIDTH, HEIGHT = 1_280, 875
KEYWORD: Final = b"page\0"
PATIENCE_S: Final = 60


def ladder() -> bytes:
    """Return the picture of a node that was killed and restarted, as `mqproto decode --svg` draws it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ladder.svg"
        done = in_process(
            "decode",
            ROOT / SAMPLE,
            "--topology",
            "three-node",
            "--svg",
            file,
        )
        assert done.status == 0, done.err
        return file.read_bytes()


def digest() -> bytes:
    """Return the digest of all files of the console's page."""
    return hashlib.sha256(repr(sorted(page().items())).encode()).hexdigest().encode()


def console() -> bytes:
    """Return a picture of three nodes at work while a link is cut, with the page's digest in it."""
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder)) as browser:
        command = [
            *COMMAND,
            "run",
            "--free-ports",
            "--console",
            "--directory",
            f"{folder}/stores",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                lines = iter(process.stdout.readline, "")
                address = next(line.split()[1] for line in lines if line.startswith("console: "))
                browser.open(address, WIDTH)
                _until(browser, "document.body.dataset.at > 0")
                _break(browser)
                picture = browser.picture(HEIGHT)
            finally:
                process.terminate()
    return _with_text(picture, KEYWORD + digest())


def _break(browser: Chromium) -> None:
    browser.evaluate("document.querySelector('#traffic form button').click()")
    received = "[...document.querySelectorAll('#traffic [data-field=received]')].some((one) => one.textContent > '9')"
    _until(browser, received)
    browser.evaluate("document.querySelectorAll('.link')[1].dispatchEvent(new MouseEvent('click'))")
    _until(browser, "Boolean(document.querySelector('#chosen button'))")
    browser.evaluate("document.querySelector('#chosen button').click()")
    _until(
        browser,
        "[...document.querySelectorAll('.strips .faint')].some((one) => one.textContent.includes('4th'))",
    )
    browser.evaluate("document.getElementById('said').hidden = true")
    _until(
        browser,
        "[...document.querySelectorAll('.dot')].filter((one) => one.style.visibility === 'visible').length > 1",
    )


def _until(browser: Chromium, holds: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not browser.evaluate(holds):
        assert time.monotonic() < give_up_s, holds


def _with_text(png: bytes, text: bytes) -> bytes:
    """Return a PNG with a text chunk inserted before its last chunk."""
    end = png.rindex(b"IEND") - 4
    chunk = b"tEXt" + text
    return png[:end] + struct.pack(">I", len(text)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[end:]


def text_of(png: bytes) -> bytes:
    """Return the digest of the page that a picture shows."""
    at = png.index(b"tEXt" + KEYWORD) + 4
    [length] = struct.unpack(">I", png[at - 8 : at - 4])
    return png[at : at + length].removeprefix(KEYWORD)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    LADDER.write_bytes(ladder())
    CONSOLE.write_bytes(console())
    print(f"{LADDER} and {CONSOLE} are new: look at them")
