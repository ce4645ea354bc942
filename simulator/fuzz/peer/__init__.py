"""The peer fuzzer, which holds whole conversations with a live peer and judges its answers."""
