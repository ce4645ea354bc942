"""HTTP for strangers: a small server, and the TCP connection that it shares with the client of the edges."""
