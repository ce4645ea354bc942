"""The contents of the tables: each column once, with its type, its unit and its meaning.

Parts are written with these schemas, the Delta Lake tables have the meanings as comments on their columns, and the page
about the tables in the documentation is made from them.
"""
