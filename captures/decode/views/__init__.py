"""A capture shown: lines, one message across all hops, a ladder diagram."""
