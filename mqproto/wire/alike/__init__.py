"""Messages that are alike: stamp.py makes more like a given one, shapes.py recognizes them."""
