"""The fuzzer of peers, which holds whole conversations with a live peer, and judges its answers."""
