"""`python -m tests.plants`: see table.py."""

import sys

from mqproto.base.errors import UsageError
from tests.plants.table import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as error:
        sys.exit(str(error))
