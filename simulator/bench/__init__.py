"""How fast it is here: `mqproto bench`. Begin with command.py, which says what there is; each benchmark is a module."""
