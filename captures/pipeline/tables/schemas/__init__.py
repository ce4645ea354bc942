"""The contents of the tables: each column once, with its type, its unit and its meaning.

Parts are written by these schemas, the Delta Lake tables have the meanings as comments of their columns, and
the page of the documents is made from them.
"""
