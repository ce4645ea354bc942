"""Messages that come from neighbours: arrivals.py decides who takes them, the other modules do."""
