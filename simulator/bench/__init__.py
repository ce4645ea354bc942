"""How fast it is here: `mqproto bench`. Begin with command.py, which says what there is; measures/ has a module for each."""
