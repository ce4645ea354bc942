"""The stages that judge, as tasks: who brings which rows to whom, and where tables go."""
