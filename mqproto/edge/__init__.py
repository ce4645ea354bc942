"""The edges of the network, where each message comes in and goes out exactly once."""
