"""The contents of the tables: each column once, with its type, its unit and its meaning.

Parts are written by these schemas, the Delta Lake tables have the meanings as comments of their columns, and
docs/reference/tables.md is made from them:
`python -m mqproto.captures.pipeline.tables.schemas.page > docs/reference/tables.md`.
"""
