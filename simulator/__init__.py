"""Running queue managers, with their sockets, disks and clients, and the one command `mqproto`."""
