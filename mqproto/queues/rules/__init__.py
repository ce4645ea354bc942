"""Rules that choose among few cases, as tables; tests check each table with all of its cases.

admission.py: who takes a message that came? strangers.py: how does a stranger's message count? consequences.py: what
are the consequences of a message's end? The rules of a session are a table, too: `mqproto.session.session.RECEIVE`.
"""
