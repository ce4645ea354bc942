"""The words of hostile peers, shared by `mqproto fuzz peer`, `mqproto fuzz strangers` and the strangers of worlds.

packets.py has the packets, forgeries.py packets in the name of others, and malformed.py packets that nobody may accept;
worlds need no more. The tactics in outofturn.py, floods.py and burdens.py make cases from these, with talk.py.
"""
