"""One queue manager as a process: a core of `mqproto`, with sockets and a disk around it.

Read node.py first: `Node.carry_out` is the promise, in order, and turns.py the beat that it is carried out to.
transport.py is for neighbours, pings.py for those who ask first; service.py is for clients, with performers.py, which
performs once what is asked for twice, and operators.py. The disk is simulator/storage.
"""
