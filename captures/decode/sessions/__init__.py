"""Sessions: what each packet is to its session, and whether that is by the book.  Begin with `checker`."""
