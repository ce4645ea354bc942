"""A second queue manager, written from the specifications alone, so that ours meets one that reads them otherwise."""
