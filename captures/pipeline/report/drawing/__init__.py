"""Facts as pictures and as HTML."""
