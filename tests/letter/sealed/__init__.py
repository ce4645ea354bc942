"""Letter peers with keys; they talk to each other and to our node."""
