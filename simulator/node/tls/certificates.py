"""The certificates that a node shows its neighbours over TLS, and the certificates that neighbours have to show.

OpenSSL trusts only the pinned certificates, each by itself and not because of the authority that signed it
(X509_V_FLAG_PARTIAL_CHAIN). Both ends ask for a certificate. In the handshake, each end checks that the other's
certificate is pinned, that today is within its dates, and that the peer has its key. A self-signed certificate serves
as well as one from an authority, and the system's authorities mean nothing here.

A certificate signed by a pinned one would pass that check, and `openssl req -x509` makes certificates that may sign. So
the bytes of the shown certificate are compared after the handshake as well. The pin serves as the name, so host names
are not checked.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from mqproto.base.errors import UsageError
from mqproto.simulator.node.tls.wire import NOT_PINNED, TlsError, TlsSocket, explained
from mqproto.simulator.topology import Node, Tls, Topology
from mqproto.wire.guid import Guid

PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----\s.+?\s-----END CERTIFICATE-----", re.DOTALL)
PEM_LIMIT_BYTES: Final = 2**20
"""The maximum number of bytes that are read from a file; a certificate takes about 2 kB."""
MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""OpenSSL's reasons for rejecting a key that belongs to another certificate. The last of them means that, of the key
and the certificate, only one is RSA.
"""
STEPS: Final = 10
"""A number greater than the number of steps of a handshake within one process. In each step, one end sends as much as
it can before it has to wait for the other end.
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The TLS contexts and pins of a node.

    accepting: the context for peers that connect to us.
    calling: the contexts for the neighbours to which we connect, keyed by their GUIDs.
    pinned: the queue manager of each certificate, keyed by the certificate's DER bytes.
    """

    accepting: ssl.SSLContext
    calling: Mapping[Guid, ssl.SSLContext]
    pinned: Mapping[bytes, Guid]

    def shown_by(self, wire: TlsSocket) -> Guid:
        """Return the queue manager whose pinned certificate was shown in a handshake.

        Raises:
            TlsError: the certificate is not pinned itself, but is signed by a pinned one.
        """
        manager = self.pinned.get(wire.certificate)
        if manager is None:
            raise TlsError(NOT_PINNED)
        return manager


def certificates_of(topology: Topology, node: Node) -> Certificates | None:
    """Read the certificates of a node and of its neighbours, and the node's key; return None if the node has no link
    with TLS.

    Raises:
        UsageError: a file cannot be read or is invalid, others can read the key, or a handshake would fail.
    """
    tls = node.tls
    if tls is None:
        return None
    own = _certificate(tls.certificate)
    _check_key(tls.key)
    pinned: dict[bytes, Guid] = {}
    names = {own: node.name}
    for neighbour in topology.tls_neighbours(node.name):
        assert neighbour.tls is not None, "the topology has seen that there is one"
        shown = _certificate(neighbour.tls.certificate)
        if shown in names:
            raise UsageError(f"{names[shown]} and {neighbour.name} have one certificate; give each its own")
        names[shown] = neighbour.name
        pinned[shown] = neighbour.guid
    _try(tls, own)
    return Certificates(
        _context(ssl.PROTOCOL_TLS_SERVER, tls, pinned),
        {manager: _context(ssl.PROTOCOL_TLS_CLIENT, tls, [shown]) for shown, manager in pinned.items()},
        pinned,
    )


def _certificate(path: Path) -> bytes:
    """Return the first certificate of a file, as DER."""
    try:
        with path.open("rb") as file:
            text = file.read(PEM_LIMIT_BYTES).decode("ascii", "replace")
    except (OSError, ValueError) as error:
        _refuse(path, error)
    found = PEM.search(text)
    if found is None:
        raise UsageError(
            f"{path}: there is no certificate in it; name a PEM file with -----BEGIN CERTIFICATE-----"
        )
    try:
        der = ssl.PEM_cert_to_DER_cert(found[0])
        _trusting(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), [der])
    except (ssl.SSLError, ValueError):
        raise UsageError(f"{path}: its certificate cannot be read; bring it anew") from None
    return der


def _check_key(path: Path) -> None:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError) as error:
        _refuse(path, error)
    if mode & 0o077:
        raise UsageError(f"{path}: others can read the key (mode {mode:o}); chmod 600 it")


def _refuse(path: Path, error: OSError | ValueError) -> NoReturn:
    reason = error.strerror if isinstance(error, OSError) else "no path"
    raise UsageError(f"{path}: {reason}; name a PEM file that this user can read") from None


def _context(protocol: int, tls: Tls, pinned: Iterable[bytes]) -> ssl.SSLContext:
    """Return the context for one end of TLS 1.2 or 1.3. It shows our certificate, and accepts only the pinned
    certificates.
    """
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    # A resumed session would show no certificate.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    _trusting(context, pinned)
    _load(context, tls.certificate, tls.key)
    return context


def show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Make one end of TLS show a certificate, with its signers' certificates if they are in the same file.

    Raises:
        UsageError: a file cannot be read or is invalid, or others can read the key.
    """
    _certificate(certificate)
    _check_key(key)
    _load(context, certificate, key)


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason in MISMATCHES:
            raise UsageError(
                f"{key} is not the key of {certificate}; name the one that belongs to it"
            ) from None
        if error.reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
            raise UsageError(f"{certificate} is too weak ({explained(error)}); make a stronger one") from None
        raise UsageError(f"{key}: there is no private key in it that can be read; name a PEM file") from None
    except _EncryptedError:
        raise UsageError(
            f"{key} is encrypted, and nobody is there to type the password; "
            f"decrypt it: openssl pkey -in {key} -out FILE"
        ) from None


def _trusting(context: ssl.SSLContext, pinned: Iterable[bytes]) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for shown in pinned:
        context.load_verify_locations(cadata=shown)


class _EncryptedError(Exception):
    """OpenSSL asks for a password."""


def _no_password() -> NoReturn:
    raise _EncryptedError


def _try(tls: Tls, own: bytes) -> None:
    """Make the node shake hands with itself, so that a configuration that would fail with every neighbour fails at the
    start.

    OpenSSL checks the dates, and that both ends may show the certificate.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        _context(ssl.PROTOCOL_TLS_CLIENT, tls, [own]).wrap_bio(to_client, to_server),
        _context(ssl.PROTOCOL_TLS_SERVER, tls, [own]).wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(STEPS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise UsageError(
                    f"{tls.certificate} is of no use: {explained(error)}; bring another one"
                ) from None
