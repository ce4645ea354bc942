"""What is to happen in a world, as data: who there is, who sends what, and what goes wrong when."""
