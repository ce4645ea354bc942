"""One module for each header and internal packet: the positions and the meaning of its bytes."""
