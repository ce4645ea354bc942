"""The keys of a node, in a folder beside its store that its owner alone can enter.

Each key pair is a PEM file that OpenSSL reads as well: one for key exchange with each provider, and the one for
signatures, whose certificate stands behind the key in the same file. Files are replaced whole. What was there before is
set aside under its date, since messages may be on their way that need it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqproto.base.errors import UsageError
from simulator.base.logfile import private
from simulator.topology.places import make

if TYPE_CHECKING:
    from mqproto.security import Certificate, KeyPair

SIGNING: Final = "signing"
LIMIT_BYTES: Final = 2**20
"""The most that is read of a file; a key pair of 16,384 bits takes some 13 kB."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One key pair of a node.

    use: the provider that it is for, or SIGNING.
    certificate: of the one for signatures.
    """

    use: str
    pair: KeyPair
    certificate: Certificate | None = None


class KeyFiles:
    """The files of one node.

    Args:
        folder: where they are; it is made with the first.
        node: what people call it.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self.folder, self.node = folder, node

    def path(self, use: str) -> Path:
        """Where the key pair for a use is, if there is one."""
        return self.folder / f"{use}.pem"

    def has(self, use: str) -> bool:
        return self.path(use).exists()

    def load(self, use: str) -> Kept:
        """The key pair for a use.

        Raises:
            UsageError: there is none, others could read it, or it is damaged.
        """
        from mqproto.security import Certificate, KeyPair

        path = self.path(use)
        if not path.exists():
            raise UsageError(f"{self.node} has no key for {use}: mqproto keys make {self.node}{_asked(use)}")
        data = self._read(path)
        try:
            pair = KeyPair.from_bytes(data)
            certificate = Certificate.from_bytes(data) if use == SIGNING else None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        if certificate is not None and certificate.key != pair.public:
            raise UsageError(f"{path}: the certificate is not that of the key: import both anew")
        return Kept(use, pair, certificate)

    def all(self) -> Iterator[Kept]:
        """All that there are: for key exchange, the strongest first, then the one for signatures."""
        from mqproto.security import PROVIDERS

        for use in (*(provider.word for provider in reversed(PROVIDERS)), SIGNING):
            if self.has(use):
                yield self.load(use)

    def keep(self, kept: Kept, date: str) -> Path | None:
        """Write a key pair; the one that was there is set aside, and its path returned.

        date: what goes into that name.
        """
        self._make_folder()
        path, before = self.path(kept.use), None
        data = kept.pair.pem() + (kept.certificate.pem() if kept.certificate is not None else b"")
        draft = path.with_suffix(".new")
        with open(draft, "wb", opener=private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            before = self._free_name(kept.use, date)
            os.link(path, before)
        draft.replace(path)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return before

    def _free_name(self, use: str, date: str) -> Path:
        path, number = self.folder / f"{use}-until-{date}.pem", 1
        while path.exists():
            number += 1
            path = self.folder / f"{use}-until-{date}-{number}.pem"
        return path

    def _make_folder(self) -> None:
        make(self.folder.parent)
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder}: {error.strerror}: name another --directory") from None
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        if mode & 0o077:
            raise UsageError(f"{self.folder}: others can enter it (mode {mode:o}): chmod 700 it")

    def _read(self, path: Path) -> bytes:
        try:
            return read_private(path)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}: mqproto keys needs to read it") from None


def read_private(path: Path) -> bytes:
    """A file with a private key.

    Raises:
        UsageError: others can read it.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise UsageError(f"{path}: others can read the key (mode {mode:o}): chmod 600 it")
        return file.read(LIMIT_BYTES)


def write_new(path: Path, data: bytes, *, secret: bool) -> None:
    """A file that was not there.

    secret: whether it is for its owner alone.

    Raises:
        UsageError: it is there, or cannot be written.
    """
    try:
        with open(path, "xb", opener=private if secret else None) as file:
            try:
                file.write(data)
                file.flush()
            except BaseException:
                with suppress(OSError):
                    path.unlink()
                raise
    except FileExistsError:
        raise UsageError(f"{path}: it is there already: name another file") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: name another file") from None


def _asked(use: str) -> str:
    """What `mqproto keys make` is to be told beside the node."""
    return " --provider base" if use == "base" else ""
