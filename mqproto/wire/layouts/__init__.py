"""One module for each header and internal packet: where its bytes are, and what they mean."""
