"""TLS between nodes: each link trusts exactly the certificate that its operator has pinned to the neighbour.

certificates.py reads the files and says who has shown what, wire.py is a socket that encrypts, handshakes.py bounds
what those cost us who have not shown anything yet.
"""

from mqproto.simulator.node.tls.certificates import Certificates, certificates_of
from mqproto.simulator.node.tls.handshakes import Handshakes
from mqproto.simulator.node.tls.wire import TlsConnection, TlsError, TlsSocket

__all__ = ["Certificates", "Handshakes", "TlsConnection", "TlsError", "TlsSocket", "certificates_of"]
