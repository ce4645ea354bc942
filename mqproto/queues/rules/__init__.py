"""Rules that are a choice among few cases, as tables; tests cross each with all of its cases.

admission.py: may a message that has come to its destination be let in? consequences.py: what follows when a message
ends? The rules of a session are such a table too: `mqproto.session.session.RECEIVE`.
"""
