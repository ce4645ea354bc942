"""lanes.py: queues whose head is in memory. localqueue.py: the queues that applications receive from."""
