"""The building blocks of layouts: their parts, the rules in them, and the records that they fill."""
