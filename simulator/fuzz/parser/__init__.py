"""The fuzzer of parsers, which feeds them packets for a given time, and keeps their faults as findings."""
