"""How fast it is here: `mqproto bench`. Begin with command.py; measures/ has a module for each benchmark."""
