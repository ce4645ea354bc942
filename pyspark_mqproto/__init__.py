"""The package in which Spark finds the format `mqproto`.

Spark looks for a DefaultSource in every package whose name begins with pyspark_.

    spark.read.format("mqproto").load("captures/")

For what the format can do, see captures/pipeline/datasource.py.
"""

from contextlib import suppress

# Spark looks here in every session, whatever it reads: one without what our extra `spark` brings goes on as it was.
with suppress(ImportError):
    from mqproto.captures.pipeline.datasource import CaptureSource as DefaultSource

    __all__ = ["DefaultSource"]
