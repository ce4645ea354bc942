"""Small files next to a store that show whether it is still in its last known state. The store itself cannot know this.

witness.py is for the log: it has the number of the newest record that was reported to be on disk. life.py is for the
whole store: its file stays in place when the store is copied or restored. identity.py compares the store with that
file. Both files are `Sectors`.
"""
