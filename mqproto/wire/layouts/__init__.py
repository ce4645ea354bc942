"""One module for each header and internal packet: it says what its bytes mean, and where each one is."""
