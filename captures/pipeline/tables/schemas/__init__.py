"""The contents of the tables: each column once, with its type, its unit and its meaning.

Parts are written by these schemas, the Delta Lake tables have the meanings as comments of their columns, and
TABLES.md beside the README is made from them:
`python -m mqproto.captures.pipeline.tables.schemas.page > captures/pipeline/TABLES.md`.
"""
