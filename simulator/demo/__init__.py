"""Three nodes, messages through them, and everything that can be broken: what was accepted must arrive.

demo.py cuts a cable and kills a node; crash.py kills nodes for as long as one likes, at the moments of strikes.py.
producer.py and consumer.py are at the ends, observer.py looks on, and simulator/faults/proof.py says whether
all is well; report.py is the result.
"""
