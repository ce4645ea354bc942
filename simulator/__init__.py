"""Running queue managers, with their sockets, disks and clients, and the command `mqproto`."""
