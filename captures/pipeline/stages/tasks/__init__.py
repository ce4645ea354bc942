"""Stages as tasks, each in the module of its table: which rows go to which task, and where tables go."""
