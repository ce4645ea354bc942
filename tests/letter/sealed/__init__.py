"""Letter peers with keys, among themselves and with our node."""
