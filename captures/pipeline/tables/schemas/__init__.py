"""What the tables hold: each column once, with its type, its unit and what it means.

Parts are written by these schemas, the tables of Delta Lake have the meanings as comments of their columns, and
TABLES.md beside the README is made of them:
`python -m mqproto.captures.pipeline.tables.schemas.page > captures/pipeline/TABLES.md`.
"""
