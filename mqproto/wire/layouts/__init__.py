"""A module for each header and each internal packet: where its bytes are, and what they mean."""
