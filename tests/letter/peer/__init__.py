"""The letter peer itself: read `packets.py` first, then `peer.py`."""
