"""TLS between nodes: each link trusts exactly the certificate that its operator has pinned to the neighbour.

certificates.py reads the files and identifies neighbours by their certificates, wire.py is a socket that encrypts, and
handshakes.py limits the cost of peers that have not shown a certificate yet.
"""

from mqproto.simulator.node.tls.certificates import Certificates, certificates_of
from mqproto.simulator.node.tls.handshakes import Handshakes
from mqproto.simulator.node.tls.wire import TlsConnection, TlsError, TlsSocket

__all__ = ["Certificates", "Handshakes", "TlsConnection", "TlsError", "TlsSocket", "certificates_of"]
