"""Certificates issued by a certificate authority for tests, and topologies that use them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from mqproto.simulator.topology import Tls, Topology

AUTHORITY: Final = trustme.CA()
BEGUN: Final = datetime.now(UTC) - timedelta(days=9)
EXPIRED: Final = BEGUN + timedelta(days=1)


def issue(
    folder: Path, name: str, until: datetime | None = None, authority: trustme.CA = AUTHORITY
) -> tuple[Path, Path]:
    """Write a certificate and its key to files with this name."""
    made = authority.issue_cert(f"{name}.example", not_before=BEGUN, not_after=until)
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(made.cert_chain_pems[0].bytes())
    key.touch(0o600)
    key.write_bytes(made.private_key_pem.bytes())
    return certificate, key


def signed_by_itself(
    folder: Path, *, key_bits: int = 2048, usage: x509.ObjectIdentifier | None = None
) -> tuple[Path, Path]:
    """Write a certificate of a kind that trustme cannot make: RSA, with a key of this length, and valid for only one
    usage.

    Return the paths of the certificate and of its key.
    """
    private = rsa.generate_private_key(65_537, key_bits)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "itself")])
    builder = x509.CertificateBuilder(name, name, private.public_key(), 1, BEGUN, BEGUN + timedelta(days=99))
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    certificate, key = folder / "itself.pem", folder / "itself.key"
    certificate.write_bytes(builder.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    write_key(key, private, serialization.NoEncryption())
    return certificate, key


def write_key(
    path: Path, private: rsa.RSAPrivateKey, encryption: serialization.KeySerializationEncryption
) -> None:
    """Write a key to a file that only the file's owner can read."""
    path.touch(0o600)
    path.write_bytes(
        private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )


def over_tls(topology: Topology, folder: Path) -> Topology:
    """Return a topology with TLS on all its links; the nodes' certificates are in the folder, under the nodes' names.

    On the nodes' hosts, TLS uses the ports 1811, 1812 and so on; `with_free_ports` chooses others.
    """
    nodes = {}
    for port, (name, node) in enumerate(topology.nodes.items(), 1811):
        certificate, key = issue(folder, name)
        nodes[name] = replace(node, tls=Tls(certificate=certificate, key=key, host=node.host, port=port))
    return replace(topology, nodes=nodes, links=tuple(replace(link, tls=True) for link in topology.links))
