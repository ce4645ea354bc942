"""One queue manager as a process: a core of `mqproto`, with sockets and a disk around it.

Read node.py first, and mqproto/manager/carry.py, which has the promise in its order; turns.py is the beat that it is
kept to. transport.py is for neighbours, pings.py for those who ask first; service.py is for clients, with
clients/, which knows who they are and what they may, and operators.py. The disk is simulator/storage.
"""
