"""Small files beside a store that show whether it is still in its last known state, which the store itself cannot know.

witness.py is for the log: it has the newest record reported as on disk. life.py is for the whole store, and stays in
place when the store is copied or restored; identity.py compares the two. sectors.py writes both.
"""
