"""What hostile peers say, said once: for `mqproto fuzz peer`, `mqproto fuzz strangers` and the strangers of worlds.

packets.py has the packets, forgeries.py what is said in the name of others, and malformed.py what nobody may accept;
worlds need no more. The tactics make cases of it, which talk.py puts together: outofturn.py, floods.py, burdens.py.
"""
