"""Messages that come from neighbours.

arrivals.py decides about each message, and the other modules act on its decisions.
"""
