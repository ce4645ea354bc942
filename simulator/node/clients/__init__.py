"""A node's clients, and what they do.

credentials.py asks the kernel which process is at the other end, and deeds.py logs each change and its author.
operators.py answers operators, orders.py carries out their orders, and readers.py admits a group that may only look.
performers.py makes sure that a repeated operation is performed only once.
"""
