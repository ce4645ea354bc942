"""Messages that are alike: stamp.py makes more of one, shapes.py knows them again."""
