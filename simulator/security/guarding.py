"""The guard of a node. It reads the node's own keys from files, and the keys of other nodes from the topology, for
mqproto/security/guard.py.

The cryptographic libraries take a tenth of a second to import. A node without any keys imports them only when a signed
or encrypted message arrives.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqproto.base.errors import UsageError
from mqproto.base.moment import Moment
from mqproto.base.timers import Timer, Timers
from mqproto.messages.drafts import CERTIFICATE_LIMIT_BYTES
from mqproto.simulator.security.keyfiles import ASIDE, LIMIT_BYTES, OF_USER, SIGNING, KeyFiles, PublicFiles
from mqproto.simulator.topology import Node, Topology
from mqproto.simulator.topology.places import keys_path, public_path
from mqproto.turn.effects import Note
from mqproto.turn.guard import ProtectionError, Signer, is_encrypted, is_signed, with_proof
from mqproto.wire import Guid, UserMessage, guid_from_text, guid_text, sid_from_text
from mqproto.wire.layouts.security import QUEUE_MANAGER, SID

if TYPE_CHECKING:
    from mqproto.security import Certificate, KeyGuard, KeyPair, Keys, PublicKey

NO_LIBRARIES: Final = "pip install 'mqproto[security]', and start the node anew"
PEERS: Final = "peers"
"""The subfolder of a node's key folder that holds the public keys of queue managers outside the topology. Each queue
manager has a folder of its own there, named after its GUID.
"""


class NodeKeys:
    """The keys that a node has on disk: its own, and those of others."""

    def __init__(self, topology: Topology, node: Node, directory: Path) -> None:
        self._topology = topology
        self._node = node
        self._directory = directory
        self._files = KeyFiles(keys_path(directory, node.name), node.name, node.private_keys)
        self._peers = self._files.folder / PEERS

    @property
    def are_there(self) -> bool:
        """Whether the node may have any key or certificate."""
        public = (self.public_of(node).folder for node in self._topology.nodes.values())
        return (
            bool(self._topology.users or self._node.private_keys)
            or self._files.folder.exists()
            or any(map(Path.exists, public))
        )

    def public_of(self, node: Node) -> PublicFiles:
        """Return the files with the public keys of a node."""
        return PublicFiles(node.keys or public_path(self._directory, node.name))

    def stamp(self) -> list[tuple[str, int, int]]:
        """Return a value that changes when a key or a certificate is added or replaced."""
        public = [self.public_of(node).folder for node in self._topology.nodes.values()]
        found = []
        for folder in (self._files.folder, *sorted(self._peers.glob("*")), *public):
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if ASIDE not in entry.name:
                        status = entry.stat()
                        found.append((entry.path, status.st_ino, status.st_mtime_ns))
        return sorted(found)

    def keep_peer(self, manager: Guid, files: Mapping[str, bytes]) -> None:
        """Keep the public keys of a queue manager outside the topology. Without files, forget its keys.

        Raises:
            UsageError: the files are not public keys.
        """
        folder = self._peers / guid_text(manager)
        if not files:
            shutil.rmtree(folder, ignore_errors=True)
            return
        _public(files, guid_text(manager))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.folder.chmod(0o700)
        for use, data in files.items():
            (folder / f"{use}.der").write_bytes(data)

    def read(self) -> Keys:
        """Read all current keys.

        Raises:
            UsageError: a file is damaged, or others could read a private key.
        """
        from mqproto.security import PROVIDERS, Keys

        for use in self._node.private_keys:
            if not use.startswith(OF_USER):
                date = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
                self.public_of(self._node).publish(self._files.load(use), date)
        own = {
            provider.word: (self._files.load(provider.word).pair, *self._files.aside(provider.word))
            for provider in PROVIDERS
            if self._files.has(provider.word)
        }
        managers: dict[Guid, Mapping[str, PublicKey]] = {}
        users: dict[bytes, list[bytes]] = {}
        people = {
            sid_from_text(user.sid): [_certificate(path).der for path in user.certificates]
            for user in self._topology.users
        }
        public = {node.guid: self.public_of(node) for node in self._topology.nodes.values()}
        for folder in self._peers.glob("*"):
            public.setdefault(guid_from_text(folder.name), PublicFiles(folder))
        for manager, files in public.items():
            keys, certificates = _public(files.read(), str(files.folder))
            if keys:
                managers[manager] = keys
            if certificates:
                users[manager] = [certificate.der for certificate in certificates]
        return Keys(own=own, signers=self._signers(people), managers=managers, users=users | people)

    def _signers(self, people: Mapping[bytes, Collection[bytes]]) -> dict[str, tuple[Signer, KeyPair]]:
        """Return the signers of this node, keyed by name. A user signs with the SID that the topology has for the
        certificate.
        """
        signers: dict[str, tuple[Signer, KeyPair]] = {}
        for use in (SIGNING, *self._files.users()):
            if not self._files.has(use):
                continue
            kept = self._files.load(use)
            assert kept.certificate is not None, "what signs has one"
            der = kept.certificate.der
            if len(der) > CERTIFICATE_LIMIT_BYTES:
                raise UsageError(
                    f"{self._files.path(use)}: a certificate of {len(der):,} bytes; import another"
                )
            sid = next((sid for sid, certificates in people.items() if der in certificates), b"")
            signer = Signer(der, sid, SID) if sid else Signer(der)
            if use == SIGNING:
                signer = Signer(der, bytes(self._node.guid), QUEUE_MANAGER)
            signers[use.removeprefix(OF_USER)] = signer, kept.pair
        return signers


class NodeGuard:
    """The guard of a node, which reads keys when they are first needed, and again when it is told that they have
    changed.

    The command that replaces keys informs the nodes one after another, and misses nodes that are just starting. So a
    message may already need keys from new files that this node has not read. Before the guard refuses a message, it
    therefore looks at the files again.
    """

    def __init__(self, node: Node, keys: NodeKeys) -> None:
        self._settings = node.settings
        self._keys = keys
        self._guard: KeyGuard | None = None
        self._stamp: list[tuple[str, int, int]] = []
        self._timers, self._notes = Timers(), list[Note]()

    @property
    def guard(self) -> KeyGuard:
        """The guard with the node's keys, which are read when it is first used."""
        if self._guard is None:
            from mqproto.security import KeyGuard, Keys

            self._stamp = self._keys.stamp()
            try:
                keys = self._keys.read()
            except UsageError as error:
                # The files came after the node was started, and nobody has told it to read them.
                keys = Keys()
                self._notes.append(Note("keys-not-read", {"reason": str(error)}))
            self._guard = KeyGuard(keys, self._settings)
            self._guard.attach(self._timers, self._notes)
        return self._guard

    def keep_peer(self, manager: Guid, files: Mapping[str, bytes]) -> None:
        """Keep the public keys of a queue manager outside the topology. Without files, forget its keys.

        Raises:
            UsageError: the files are not public keys.
        """
        self._keys.keep_peer(manager, files)
        self.read_anew()

    def read_anew(self) -> None:
        """Read the keys again, after they have changed.

        Raises:
            UsageError: a file cannot be used; the old keys stay in use.
        """
        guard, stamp = self.guard, self._keys.stamp()
        guard.renew(self._keys.read())
        self._stamp = stamp

    def attach(self, timers: Timers, notes: list[Note]) -> None:
        self._timers, self._notes = timers, notes
        if self._guard is not None:
            self._guard.attach(timers, notes)

    def opened(self, message: UserMessage, weak: Collection[str], now: Moment) -> UserMessage:
        if self._guard is None and not is_encrypted(message) and not is_signed(message):
            return with_proof(message, 0)
        try:
            return self.guard.opened(message, weak, now)
        except ProtectionError:
            if not self._has_read_anew():
                raise
        return self.guard.opened(message, weak, now)

    def _has_read_anew(self) -> bool:
        """Read the keys again if their files have changed. Return whether the new keys are in use."""
        stamp = self._keys.stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp  # A file that cannot be used is not read again before it is replaced.
        try:
            self.guard.renew(self._keys.read())
        except (UsageError, OSError) as error:
            self._notes.append(Note("keys-not-read", {"reason": str(error)}))
            return False
        return True

    def check(self, message: UserMessage, manager: Guid) -> None:
        self.guard.check(message, manager)

    def signer(self, name: str) -> Signer:
        return self.guard.signer(name)

    def name_of(self, certificate: bytes) -> str:
        return self.guard.name_of(certificate)

    def signed(self, message: UserMessage) -> UserMessage:
        return self.guard.signed(message)

    def sealed(self, message: UserMessage, now: Moment) -> UserMessage:
        return self.guard.sealed(message, now)

    def expired(self, timer: Timer, now: Moment) -> None:
        self.guard.expired(timer, now)


def guard_of(topology: Topology, node: Node, directory: Path) -> NodeGuard | None:
    """Return the guard of a node, or None if the libraries are not installed.

    Raises:
        UsageError: a file cannot be used.
    """
    if not is_installed():
        return None
    keys = NodeKeys(topology, node, directory)
    guard = NodeGuard(node, keys)
    if keys.are_there:
        guard.read_anew()
    return guard


def is_installed() -> bool:
    """Whether the libraries of mqproto[security] are installed."""
    return all(find_spec(name) is not None for name in ("cryptography", "Crypto"))


def _public(files: Mapping[str, bytes], where: str) -> tuple[dict[str, PublicKey], list[Certificate]]:
    """Return the public keys for key exchange in these files, and the current and earlier certificates."""
    from mqproto.security import PROVIDERS, Certificate, PublicKey

    words = {provider.word for provider in PROVIDERS}
    keys, certificates = {}, []
    for use, data in files.items():
        if use not in words and use.partition(ASIDE)[0] != SIGNING:
            raise UsageError(
                f"{where}: {use!r} is no use of a key: name files {', '.join(sorted(words))}, {SIGNING}"
            )
        try:
            if use in words:
                keys[use] = PublicKey.from_bytes(data)
            else:
                certificates.append(Certificate.from_bytes(data))
        except UsageError as error:
            raise UsageError(f"{where}: {use}: {error}") from None
    return keys, certificates


def _certificate(path: Path) -> Certificate:
    from mqproto.security import Certificate

    try:
        with path.open("rb") as file:
            return Certificate.from_bytes(file.read(LIMIT_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: name a file that you can read") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
