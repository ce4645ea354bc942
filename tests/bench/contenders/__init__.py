"""One module for each library that `measures/others.py` knows; each needs its library, from mqproto[bench]."""
