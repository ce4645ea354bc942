"""One module for each header and internal packet, which says what the bytes mean and where they are."""
