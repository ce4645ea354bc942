"""Small files beside a store that know better than the store itself whether it is as they last saw it.

witness.py is for the log: it has the newest record that was said to be on disk. life.py is for the whole store, and
stays where it is when the store is copied or put back; identity.py compares the two. sectors.py writes both.
"""
