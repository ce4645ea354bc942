"""Makes the tables of packets and streams from ranges of captures."""
