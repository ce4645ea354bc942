"""One module for each header and internal packet: the places and the meaning of its bytes."""
