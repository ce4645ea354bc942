"""Data that runs keep among the tables for later runs."""
