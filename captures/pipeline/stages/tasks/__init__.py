"""Runs stages as tasks.

The module of each table says which rows go to which task, and where the resulting tables go.
"""
