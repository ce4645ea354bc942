"""The building blocks of layouts: parts, the rules in them, and the records that they fill."""
