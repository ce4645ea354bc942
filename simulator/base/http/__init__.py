"""HTTP for untrusted clients: a small server, and the TCP stream that it shares with the HTTP client of the edges."""
