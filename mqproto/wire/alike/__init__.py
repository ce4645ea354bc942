"""Messages that are alike: stamp.py makes more of them from one, and shapes.py recognizes them."""
