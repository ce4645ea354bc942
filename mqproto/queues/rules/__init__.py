"""Rules with few cases, written as tables; tests check every case of each table.

admission.py: who takes a message that came? strangers.py: how does a stranger's message count? consequences.py: what
are the consequences of a message's end? The rules of a session are a table, too: `mqproto.session.session.RECEIVE`.
"""
