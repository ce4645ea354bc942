"""Tokens of SoftHSM. It is by others, as is pkcs11-tool of OpenSC, which makes keys in them and checks what we do."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.programs import needs

PIN: Final = "97531-planted-pin"
_PLACES: Final = ("/usr/lib/softhsm", "/usr/lib/*/softhsm", "/usr/lib64/pkcs11", "/usr/local/lib/softhsm")


def library() -> Path:
    """SoftHSM's; one that is not there where there is none."""
    found = (path for place in _PLACES for path in Path("/").glob(f"{place[1:]}/libsofthsm2.so"))
    return next(found, Path("/usr/lib/softhsm/libsofthsm2.so"))


LIBRARY: Final = library()


def needs_softhsm(test: Any) -> Any:
    """A test that is skipped where SoftHSM or OpenSC is not installed."""
    return needs("softhsm2-util")(needs("pkcs11-tool")(test))


@dataclass(frozen=True)
class Token:
    """One token, and the file with its PIN."""

    label: str
    folder: Path
    pin: Path

    def uri(self, key: str, **query: str) -> str:
        """The URI of a private key; what is given takes the place of a part."""
        parts = {"module-path": str(LIBRARY), "pin-source": f"file:{self.pin}"} | query
        text = "&".join(f"{name}={value}" for name, value in parts.items() if value)
        return f"pkcs11:token={self.label};object={key}?{text}"

    def tool(self, *arguments: str | Path) -> str:
        """What pkcs11-tool says, logged in."""
        start = ("pkcs11-tool", "--module", LIBRARY, "--token-label", self.label, "--login", "--pin", PIN)
        return subprocess.run([*start, *arguments], check=True, capture_output=True, text=True).stdout

    def make(self, key: str, number: int, kind: str = "rsa:1024", *more: str) -> str:
        """Have pkcs11-tool make a key pair."""
        self.tool("--keypairgen", "--key-type", kind, "--label", key, "--id", f"{number:02x}", *more)
        return self.uri(key)


def forget() -> None:
    """As if the token's daemon had been started anew: each session is lost, and new tokens are seen."""
    import pkcs11

    pkcs11.lib(str(LIBRARY)).finalize()


def flags_of(token: Token) -> int:
    """What the token says of its PIN, to everybody."""
    import pkcs11

    forget()
    return int(pkcs11.lib(str(LIBRARY)).get_token(token_label=token.label).flags)


def new_token(folder: Path, label: str) -> Token:
    """Another token among those of this process."""
    pin = folder / f"{label}.pin"
    pin.write_text(f"{PIN}\n")
    pin.chmod(0o600)
    subprocess.run(
        ["softhsm2-util", "--init-token", "--free", "--label", label, "--so-pin", f"so-{PIN}", "--pin", PIN],
        check=True,
        capture_output=True,
    )
    forget()
    return Token(label, folder, pin)


def begin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have SoftHSM's tokens in this folder."""
    tokens = folder / "tokens"
    tokens.mkdir()
    configuration = folder / "softhsm2.conf"
    configuration.write_text(
        f"directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n"
    )
    monkeypatch.setenv("SOFTHSM2_CONF", str(configuration))
