"""python -m mqproto.captures.spoil"""

import sys

from mqproto.captures.spoil.command import main

sys.exit(main())
