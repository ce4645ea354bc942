"""A node's clients, and their actions.

credentials.py asks the kernel which process is at the other end, and deeds.py logs each change and its author.
operators.py answers operators, orders.py carries out their orders, and readers.py lets in a group that may only look.
performers.py makes sure that a repeated operation is performed once.
"""
