"""How queue managers and what they say are drawn, for the report, `mqproto decode --diagram` and the console alike.

placing.py has where queue managers stand on a route map, sequence.py how far a sequence is, charts.py bars and lines,
shapes.py all of it as SVG or JSON, and palette.css the colours of pages.
"""
