"""Fuzzing parsers: feeds them packets for a given time, and keeps their faults as findings."""
