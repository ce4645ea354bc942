"""The keys of a node. They are in a folder next to the node's store, which only the folder's owner can enter.

Each key pair is a PEM file that OpenSSL reads as well. There is one for key exchange with each provider, one for the
node's signatures, and one for each user that signs here. A file for signatures has the certificate after the key. Files
are replaced as a whole. The old key is set aside under its date, because messages in transit may need it.

The public halves of a node's keys are in another folder, which everybody can read, in the form that a directory service
would use. Old certificates are set aside there as well, because messages in transit may be signed with them.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from mqproto.base.errors import UsageError
from mqproto.simulator.base.logfile import private
from mqproto.simulator.topology.places import keys_path, make, public_path
from mqproto.wire import public_key_blob
from mqproto.wire.layouts.keyblobs import RSA_KEY_EXCHANGE, RSA_SIGN

if TYPE_CHECKING:
    from mqproto.security import Certificate, KeyPair

SIGNING: Final = "signing"
OF_USER: Final = "user-"
"""The prefix of the name under which a user's key is kept."""
ASIDE: Final = "-until-"
"""The text between a key's use and the date, in the file name of a key that was set aside."""
FORMS: Final = ("blob", "pem", "der", "cer")
"""The suffixes of files with public keys."""
DAYS: Final = 3_650
"""The number of days for which a self-signed certificate is valid."""
LIMIT_BYTES: Final = 2**20
"""The maximum number of bytes that are read from a file; a key pair of 16,384 bits takes about 13 kB."""


@dataclass(frozen=True, slots=True)
class KeptKeyPair:
    """One key pair of a node.

    use: what the key pair is for: a provider, SIGNING, or a user who signs.
    certificate: the certificate of a key pair that signs.
    """

    use: str
    pair: KeyPair
    certificate: Certificate | None = None


class KeyFiles:
    """The key files of one node.

    Args:
        folder: the folder of the files; it is made when the first file is written.
        node: the node's name.
        named: the files that the topology names, keyed by use.
        again: the options that a suggested command needs to find the node.
    """

    def __init__(
        self,
        folder: Path,
        node: str,
        named: Mapping[str, Path] = MappingProxyType({}),
        again: str = "",
    ) -> None:
        self.folder, self.node, self.named, self.again = folder, node, named, again

    def path(self, use: str) -> Path:
        """Return the file of the key pair for a use, whether or not it exists."""
        return self.named.get(use, self.folder / f"{use}.pem")

    def has(self, use: str) -> bool:
        return use in self.named or self.path(use).exists()

    def load(self, use: str) -> KeptKeyPair:
        """Return the key pair for a use.

        Raises:
            UsageError: there is no such key pair, others could read it, or it is damaged.
        """
        from mqproto.security import Certificate, KeyPair

        path = self.path(use)
        if not path.exists():
            raise UsageError(
                f"{self.node} has no key for {use}: mqproto keys make {self.node}{_asked(use)}{self.again}"
            )
        data = self._read(path)
        try:
            pair = KeyPair.from_bytes(data, is_known=True)
            certificate = Certificate.from_bytes(data) if is_for_signatures(use) else None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        if certificate is not None and certificate.key != pair.public:
            raise UsageError(f"{path}: the certificate is not that of the key: import both anew")
        return KeptKeyPair(use, pair, certificate)

    def all(self) -> Iterator[KeptKeyPair]:
        """Yield all key pairs: first those for key exchange, beginning with the strongest, and then those for
        signatures.
        """
        from mqproto.security import PROVIDERS

        for use in (*(provider.word for provider in reversed(PROVIDERS)), SIGNING, *self.users()):
            if self.has(use):
                yield self.load(use)

    def users(self) -> list[str]:
        """Return the uses of users' key pairs, in the form that `path` and `load` take."""
        found = {path.stem for path in self.folder.glob(f"{OF_USER}*.pem")}
        found |= {use for use in self.named if use.startswith(OF_USER)}
        return [use for use in sorted(found) if ASIDE not in use]

    def aside(self, use: str) -> list[KeyPair]:
        """Return the key pairs that were in use earlier, beginning with the most recent.

        Raises:
            UsageError: a key pair cannot be read, or other users could read it.
        """
        from mqproto.security import KeyPair

        pairs = []
        for path in sorted(self.folder.glob(f"{use}{ASIDE}*.pem"), reverse=True):
            data = self._read(path)
            try:
                pairs.append(KeyPair.from_bytes(data, is_known=True))
            except UsageError as error:
                raise UsageError(f"{path}: {error}; if it is needed no more, remove the file") from None
        return pairs

    def keep(self, kept: KeptKeyPair, date: str) -> Path | None:
        """Write a key pair. If there is an old one, set it aside and return its path.

        date: goes into the name of the old file.
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
            before = _free_name(path, date)
            os.link(path, before)
        draft.replace(path)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return before

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


class PublicFiles:
    """The public files of a queue manager: its public keys, and the certificate with which it signs.

    folder: the folder, which is made when the first file is written. A file is named after its use: aes.blob,
        enhanced.pem, signing.cer, and signing-until-DATE.cer for a certificate that was replaced.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, kept: KeptKeyPair, date: str = "") -> None:
        """Write the public half of a key pair; an old certificate is set aside.

        date: goes into the name of the old file.

        Raises:
            UsageError: the file cannot be written.
        """
        data = kept.certificate.pem() if kept.certificate is not None else public_blob(kept)
        form = "cer" if kept.certificate is not None else "blob"
        draft, path = self.folder / f".{kept.use}.new", self.folder / f"{kept.use}.{form}"
        try:
            self.folder.mkdir(mode=0o755, exist_ok=True)
            draft.write_bytes(data)
            draft.chmod(0o644)
            if kept.certificate is not None and path.exists():
                os.link(path, _free_name(path, date))
            draft.replace(path)
        except OSError as error:
            raise UsageError(
                f"{self.folder}: {error.strerror}: make it a folder that you can write to"
            ) from None

    def publish(self, kept: KeptKeyPair, date: str) -> None:
        """Write the public half of a key pair, unless it is there already."""
        own = kept.certificate.pem() if kept.certificate is not None else public_blob(kept)
        if self.read().get(kept.use) != own:
            self.write(kept, date)

    def read(self) -> dict[str, bytes]:
        """Return the content of each file, keyed by its use; empty if there is no such folder.

        Raises:
            UsageError: a file cannot be read.
        """
        found: dict[str, bytes] = {}
        for path in sorted(self.folder.glob("*.*")):
            if path.suffix.removeprefix(".") in FORMS and not path.name.startswith("."):
                try:
                    with path.open("rb") as file:
                        found[path.stem] = file.read(LIMIT_BYTES)
                except OSError as error:
                    raise UsageError(f"{path}: {error.strerror}: name a folder of public keys") from None
        return found


def keep_all(directory: Path, name: str, made: Iterable[KeptKeyPair], date: str) -> list[Path]:
    """Write key pairs for a node. Except for users' keys, write their public halves for others, too.

    Return the paths of the old key pairs that were set aside.

    date: goes into the names of the old files.

    Raises:
        UsageError: the files cannot be written.
    """
    files, public = KeyFiles(keys_path(directory, name), name), PublicFiles(public_path(directory, name))
    aside = []
    for kept in made:
        if (before := files.keep(kept, date)) is not None:
            aside.append(before)
        if not kept.use.startswith(OF_USER):
            public.write(kept, date)
    return aside


def certified(pair: KeyPair, name: str) -> Certificate:
    """Return a self-signed certificate for a name."""
    from mqproto.security import self_signed

    return self_signed(pair, name, int(time.time()), DAYS)


def make_keys(directory: Path, name: str, bits: int) -> None:
    """For a node without keys, make key pairs for AES and for signatures, as `mqproto keys make` does."""
    from mqproto.security import new_key_pair

    signing = new_key_pair(bits)
    made = KeptKeyPair("aes", new_key_pair(bits)), KeptKeyPair(SIGNING, signing, certified(signing, name))
    keep_all(directory, name, made, "")


def public_blob(kept: KeptKeyPair) -> bytes:
    """Return the public half of a key pair as a PUBLICKEYBLOB."""
    algorithm = RSA_SIGN if is_for_signatures(kept.use) else RSA_KEY_EXCHANGE
    return public_key_blob.encode(kept.pair.public.blob(algorithm))


def is_for_signatures(use: str) -> bool:
    """Return whether a key signs. The other keys are for key exchange."""
    return use == SIGNING or use.startswith(OF_USER)


def read_private(path: Path) -> bytes:
    """Read a file with a private key.

    Raises:
        UsageError: others can read it.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise UsageError(f"{path}: others can read the key (mode {mode:o}): chmod 600 it")
        return file.read(LIMIT_BYTES)


def write_new(path: Path, data: bytes, *, secret: bool) -> None:
    """Write a new file.

    secret: whether only the file's owner may read it.

    Raises:
        UsageError: the file already exists, or cannot be written.
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


def _free_name(path: Path, date: str) -> Path:
    """Return an unused name for a file that is to be set aside."""
    name, number = path.with_stem(f"{path.stem}{ASIDE}{date}"), 1
    while name.exists():
        number += 1
        name = path.with_stem(f"{path.stem}{ASIDE}{date}-{number}")
    return name


def _asked(use: str) -> str:
    """Return the additional options of `mqproto keys make` that a use needs."""
    return " --provider base" if use == "base" else ""
