"""`python -m simulator.world.plants`: see table.py."""

import sys

from mqproto.base.errors import UsageError
from simulator.world.plants.table import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as error:
        sys.exit(str(error))
