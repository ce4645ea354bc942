"""Runs the tasks of a stage: in this process, a pool of processes, or Spark, with the Java that Spark needs."""
