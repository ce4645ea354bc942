"""HTTP for untrusted clients: a small server, and a TCP stream that the edges' HTTP client uses, too."""
