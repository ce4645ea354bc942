"""A node's clients, and their actions.

deeds.py logs each change and its author, the process that the kernel finds at the other end.
operators.py answers operators, orders.py carries out their orders, and readers.py lets in a group that may only look.
performers.py makes sure that a repeated operation is performed once.
"""
