"""The edges of the network, where each message enters and leaves exactly once."""
