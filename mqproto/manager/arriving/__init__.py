"""Messages that come from neighbors.

arrivals.py decides about each message, and the other modules act on its decisions.
"""
