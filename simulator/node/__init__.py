"""One queue manager as a process: a core of `mqproto`, surrounded by sockets and a disk.

Read node.py first, and mqproto/manager/carry.py, which keeps the promised order; turns.py paces the loop. transport.py
is for neighbours, and pings.py for neighbours that ping first. service.py serves clients; clients/ identifies them,
checks their rights, and carries out operators' requests. The disk is in simulator/storage.
"""
