"""The things that hostile peers say, shared by `mqproto fuzz peer`, `mqproto fuzz strangers` and the strangers of
simulated worlds.

packets.py has the packets, forgeries.py has packets in others' names, and malformed.py has packets that no queue
manager may accept. Worlds need only these. For the fuzzers, the tactics in outofturn.py, floods.py and burdens.py use
talk.py to make cases from these packets.
"""
