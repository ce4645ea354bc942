"""Wine's CryptoAPI as a process that answers line by line; the questions are in cryptoapi.c.

Wine's usual folder takes 0.7 GB, and ten seconds to create. The CryptoAPI needs only a folder of links to the installed
libraries, and the providers in its registry; the program registers these.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

COMPILER: Final = "x86_64-w64-mingw32-gcc"
SOURCE: Final = Path(__file__).with_name("cryptoapi.c")
_PLACES: Final = ("/usr/lib/*/wine", "/usr/lib/wine", "/usr/lib64/wine", "/opt/wine-*/lib*/wine")


def _program(*names: str) -> str | None:
    """Return the path of one of Wine's programs; Debian keeps some of them off the PATH."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/lib/wine"])
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def _loader() -> str | None:
    """Return the path of the Wine that runs 64-bit programs."""
    return _program("wine64", "wine")


def _libraries() -> Path | None:
    """Return the folder of Wine's own libraries."""
    found = (
        path.parent for place in _PLACES for path in Path("/").glob(f"{place[1:]}/x86_64-windows/rsaenh.dll")
    )
    return next(found, None)


def _lacking() -> str:
    if _loader() is None or _libraries() is None:
        return "Wine is not installed: apt-get install wine64"
    if shutil.which(COMPILER) is None:
        return f"{COMPILER} is not installed: apt-get install gcc-mingw-w64-x86-64"
    return ""


LACKING: Final = _lacking()
needs_wine: Final = pytest.mark.skipif(bool(LACKING), reason=LACKING)


class Oracle:
    """Wine's answers; if a function of the CryptoAPI fails, its error is raised as an OracleError."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *words: str | int | bytes) -> list[bytes]:
        """Ask one question; bytes are sent and returned as hex."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = " ".join((word.hex() or "-") if isinstance(word, bytes) else str(word) for word in words)
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline().split()
        if not said or said[0] in ("!", "?"):
            raise OracleError(" ".join(said) or "it has ended")
        return [b"" if word == "-" else bytes.fromhex(word) for word in said]

    def verifies(self, provider: str, algorithm: int, key: bytes, data: bytes, signature: bytes) -> bool:
        [said] = self.ask("verify", provider, f"{algorithm:x}", key, data, signature)
        return said == b"\1"


class OracleError(Exception):
    """Wine reported an error."""


@contextmanager
def running(folder: Path) -> Iterator[Oracle]:
    """Run Wine in a folder of its own, which nothing else uses."""
    loader, libraries = _loader(), _libraries()
    assert loader is not None
    assert libraries is not None
    program, prefix = folder / "cryptoapi.exe", folder / "prefix"
    subprocess.run(
        [COMPILER, "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, SOURCE, "-ladvapi32", "-lcrypt32"],
        check=True,
    )
    system = prefix / "drive_c" / "windows" / "system32"
    system.mkdir(parents=True)
    for library in libraries.glob("*.dll"):
        (system / library.name).symlink_to(library)
    (prefix / "dosdevices").mkdir()
    (prefix / "dosdevices" / "c:").symlink_to("../drive_c")
    (prefix / "dosdevices" / "z:").symlink_to("/")
    (prefix / ".update-timestamp").write_text("disable\n")
    environment = os.environ | {
        "WINEPREFIX": str(prefix),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree=;mshtml=",
    }
    process = subprocess.Popen(
        [loader, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield Oracle(process)
    finally:
        process.communicate()
        # Wine's server would wait some seconds for another program, and then write into a folder that is gone.
        subprocess.run(
            [_program("wineserver64", "wineserver") or "wineserver", "-k"], env=environment, check=False
        )
