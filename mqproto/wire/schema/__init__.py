"""What layouts are written with: their parts, the rules in them, and the records that they fill."""
