"""Fuzzing parsers: packets for as long as one likes, and whatever is done wrong with them."""
