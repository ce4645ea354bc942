"""Rules that are a choice among few cases, as tables; tests cross each with all of its cases.

admission.py: who takes a message that came? strangers.py: how does a stranger's message count? consequences.py: what
follows when a message ends? The rules of a session are such a table too: `mqproto.session.session.RECEIVE`.
"""
