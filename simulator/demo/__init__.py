"""Sends messages through three nodes and breaks everything that can break: accepted messages must arrive.

demo.py cuts a cable and kills a node; crash.py kills nodes for a given time, at the moments of strikes.py.
producer.py and consumer.py are at the ends, observer.py watches, and simulator/faults/proof.py checks the promises;
report.py has the result.
"""
