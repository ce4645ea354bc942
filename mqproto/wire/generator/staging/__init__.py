"""What setup.py makes of the source before mypyc compiles it: records with an `__init__` of their own, and the codec.

Nothing here runs where mqproto runs. Both are made of what the source says once, in a copy, while a wheel is built.
"""
