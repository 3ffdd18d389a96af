"""`python -m darkroom`: the command of every stage."""

import sys

from darkroom.cli import main

sys.exit(main())
