"""The parser fuzzer, which feeds packets to a parser for a given time and keeps the faults that it finds."""
