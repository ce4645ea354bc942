"""Messages that are alike: stamp.py makes more messages like a given one, and shapes.py recognizes them."""
