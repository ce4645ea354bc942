"""Rules with few cases, written as tables. Tests check every case of each table.

admission.py: who takes a message that has arrived. strangers.py: how a stranger's message is treated. consequences.py:
what follows from the end of a message.

The rules of a session are a table, too: `mqproto.session.states.RECEIVE`.
"""
