"""From ranges of captures to the tables of packets and streams."""
