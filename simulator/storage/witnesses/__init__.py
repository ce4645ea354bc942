"""Small files beside a store that know better than the store itself, if it is not as they last saw it.

witness.py is the log's: up to which record of it was said that it is on disk. life.py is the whole store's, and stays
where it is when the store is copied or put back; identity.py compares the two. sectors.py is how both are written.
"""
