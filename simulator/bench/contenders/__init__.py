"""One module for each library that `others.py` knows; each needs its library, which mqproto[bench] installs."""
