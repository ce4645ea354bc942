"""Queue managers that run: sockets, disks, clients, one command."""
