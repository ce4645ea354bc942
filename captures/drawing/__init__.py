"""Drawings of queue managers and their traffic, for the report, `mqproto decode --diagram` and the console.

placing.py puts queue managers on a route map, sequence.py draws a sequence's progress, and charts.py draws charts.
shapes.py writes all of these as SVG or JSON, and palette.css holds the colors of pages.
"""
