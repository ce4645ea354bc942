"""Records what has happened in a world, and checks what must hold in every world."""
