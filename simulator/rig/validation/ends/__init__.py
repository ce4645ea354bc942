"""Tries, in one system, every way in which a message can end after the answer 200. Afterwards, an audit says how each
message ended.

Read `ways.py` first, then `running.py`.
"""

from typing import Final

NAME: Final = "ends"
TITLE: Final = "Each way in which a message can end is named by an audit, and nothing is unaccounted for"
HEADING: Final = "Custody"
