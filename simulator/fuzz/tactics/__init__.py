"""The things that hostile peers say, shared by `mqproto fuzz peer`, `mqproto fuzz strangers` and the strangers of
simulated worlds.

packets.py has the packets, forgeries.py has packets in the name of others, and malformed.py has packets that no queue
manager may accept. Worlds need no more than these. The tactics in outofturn.py, floods.py and burdens.py make cases
from these, with talk.py.
"""
