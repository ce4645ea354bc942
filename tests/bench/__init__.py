"""How fast it is here: `python -m tests.bench`. Begin with command.py; measures/ has a module for each benchmark."""
