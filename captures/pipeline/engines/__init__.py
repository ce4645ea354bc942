"""What carries out the tasks of a stage: this process, a pool of others, or Spark, and the Java that this needs."""
