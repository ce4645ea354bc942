"""python -m captures.spoil"""

import sys

from captures.spoil.command import main

sys.exit(main())
