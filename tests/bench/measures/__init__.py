"""The benchmarks, a module for each."""
