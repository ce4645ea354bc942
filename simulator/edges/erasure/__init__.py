"""`mqproto erase`: what somebody has sent is gone from all files of a system, and that it was there stays known.

Read first: `erasing.py`.
"""
