"""Modules that several parts of the simulator share."""
