"""One queue manager as a process: a core of `mqproto`, with sockets and a disk around it.

Read node.py first, and mqproto/manager/carry.py, which has the promised order; turns.py paces the loop. transport.py is
for neighbours, and pings.py for neighbours that ping first. service.py serves clients; clients/ identifies them, checks
their rights, and carries out operators' requests. The disk is simulator/storage.
"""
