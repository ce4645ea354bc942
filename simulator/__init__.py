"""Queue managers as running processes, with sockets, disks and clients; and the command `mqproto`."""
