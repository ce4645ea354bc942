"""What a program of ours does around its work."""
