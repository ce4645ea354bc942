"""A real browser without a window: Chromium, started once, and controlled through a pipe with its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
PATIENCE_S: Final = 120
"""The time limit for an answer in seconds: nothing takes this long unless the browser hangs."""
ARGUMENTS: Final = (
    "--headless",
    "--disable-gpu",
    # Its sandbox needs what containers and root do not have; it opens pages of ours, without a network.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--proxy-server=127.0.0.1:9",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)

RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
FOUND: Final = """
axe.run(%s, { runOnly: %s }).then(({ violations }) => violations.flatMap(({ id, nodes }) =>
  nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`)))
"""

CONTRAST: Final = """
(() => {
  const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const node of document.querySelectorAll("h1, h2, h3, p, td, th, a, b, dt, dd, code, li, label, span, caption")) {
    if (!node.textContent.trim()) continue;
    const [a, b] = [luminance(parse(getComputedStyle(node).color)), luminance(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.add(`${node.localName}.${node.className}: ${ratio.toFixed(1)}`);
  }
  return [...poor];
})()
"""
"""A script that returns the contrast of each kind of text whose contrast is lower than WCAG 2.2 requires."""


class Chromium:
    """A browser tab that shows one page after another.

    Attributes:
        complaints: messages on the tab's console about the current page: errors, and what the page's policy forbade.
    """

    def __init__(self, commands: int, answers: int, folder: Path) -> None:
        self.complaints: list[str] = []
        self._commands = commands
        self._answers = answers
        self._page = folder / "page.html"
        self._read = b""
        self._count = 0
        self._loaded = 0
        self._session: str | None = None
        tab = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def show(self, text: str, fragment: str = "", width: int = 1_000, *, is_dark: bool = False) -> None:
        """Load a page as if a link to it had been followed; return after its script has run."""
        self._page.write_text(text, "utf-8")
        self.open(f"{self._page.as_uri()}#{fragment}", width, is_dark=is_dark)

    def open(self, address: str, width: int = 1_000, *, is_dark: bool = False) -> None:
        """Load the page at an address; return after its script has run."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        # What differs in the fragment alone would not be loaded again.
        for each in ("about:blank", address):
            self.complaints.clear()
            before = self._loaded
            self._call("Page.navigate", url=each)
            while self._loaded == before:
                self._message()

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression as JSON; a promise is awaited."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self, selector: str = "main") -> str:
        """Return the text that a person reads on the page, joined into one line."""
        shown = self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
        return " ".join(str(shown).split())

    def barriers(self, selector: str = "html") -> list[str]:
        """Return the barriers that axe-core finds on the page, each as one line.

        The rules are those of WCAG 2.2 up to level AA, and good practice.
        """
        if not self.evaluate("'axe' in window"):
            self.evaluate(f"{_axe_core()};0")
        found: list[str] = self.evaluate(FOUND % (json.dumps(selector), json.dumps(RULES)))
        return found

    def type(self, text: str) -> None:
        """Enter a text where the focus is."""
        self._call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        """Press one key and release it.

        Args:
            key, code: `key` and `keyCode`, as in a KeyboardEvent.
        """
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text
            )

    def picture(self, height: int | None = None) -> bytes:
        """Return the page as a PNG image: the whole page, or only the top `height` pixels."""
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "scale": 1, **size} | ({"height": height} if height else {})
        clip = {name: clip[name] for name in ("x", "y", "width", "height", "scale")}
        answer = self._call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def close(self) -> None:
        """Ask the browser to exit."""
        self._session = None
        with suppress(EOFError, OSError):
            self._call("Browser.close")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        command = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while (message := self._message()).get("id") != number:
            pass
        assert "error" not in message, f"{method}: {message['error']}"
        result: dict[str, Any] = message["result"]
        return result

    def _message(self) -> dict[str, Any]:
        """Return the browser's next answer or event.

        Raises:
            EOFError: the browser has exited.
            TimeoutError: the browser sends nothing.
        """
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._read:
            if not select.select([self._answers], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {PATIENCE_S} s")
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise EOFError("Chromium has ended")
            self._read += data
        line, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if message.get("method") == "Page.loadEventFired":
            self._loaded += 1
        elif message.get("method") == "Log.entryAdded":
            self.complaints.append(message["params"]["entry"]["text"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(message["params"]["exceptionDetails"]))
        return message


@cache
def _axe_core() -> str:
    """Return the source of axe-core, taken from a package that ships it for another browser's driver."""
    package = find_spec("axe_playwright_python")
    assert package is not None
    assert package.origin is not None
    return (Path(package.origin).parent / "axe.min.js").read_text("utf-8")


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """Provide a browser that keeps all its data in a folder, and exits at the end of the block."""
    assert PROGRAM is not None
    its_commands, commands = os.pipe()
    answers, its_answers = os.pipe()
    # It reads from 3 and writes to 4, whatever numbers these have here; other shells know of one digit alone.
    shell = f'exec "$@" 3<&{its_commands} 4>&{its_answers}'
    command = ["bash", "-c", shell, "bash", PROGRAM, *ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            pass_fds=(its_commands, its_answers),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=os.environ | {"HOME": str(folder)},
        )
    os.close(its_commands)
    os.close(its_answers)
    try:
        browser = Chromium(commands, answers, folder)
        yield browser
        browser.close()
        process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(commands)
        os.close(answers)
