"""Runs the tasks of a stage: in this process, in a pool of processes, or on Spark with its Java process."""
