"""A second queue manager, written only from the specifications, so that ours meets one that reads them differently."""
