"""Spark finds the format `mqproto` here: it looks for a DefaultSource in every package whose name begins with pyspark_.

    spark.read.format("mqproto").load("captures/")

What the format can do is in captures/pipeline/datasource.py.
"""

from contextlib import suppress

# Spark looks here in every session, whatever it reads: one without what our extra `spark` brings goes on as it was.
with suppress(ImportError):
    from mqproto.captures.pipeline.datasource import CaptureSource as DefaultSource

    __all__ = ["DefaultSource"]
