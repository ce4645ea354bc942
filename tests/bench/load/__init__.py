"""Nodes to be measured, and messages for them."""
