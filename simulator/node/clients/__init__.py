"""A node's clients and their actions.

credentials.py asks the kernel who is at the other end, deeds.py logs who changed what, operators.py answers operators,
orders.py carries out their orders, and readers.py lets in a group that may only look. performers.py makes sure that a
repeated operation is performed once.
"""
