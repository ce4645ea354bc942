"""Who the clients of a node are, and what they have done.

credentials.py asks the kernel who is at the other end, deeds.py writes down who changed what, orders.py carries out
what operators order, readers.py lets a group in that may only look. performers.py performs once what is asked for
twice.
"""
