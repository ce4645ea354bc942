"""Stages as tasks, each in the module of its table: who brings which rows to whom, and where tables go."""
