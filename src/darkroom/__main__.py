"""`python -m darkroom`: the command of every stage."""

# No effect on any output: starts the command line

import sys

from darkroom.cli import main

sys.exit(main())
