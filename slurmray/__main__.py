"""`python -m slurmray` is the command `slurmray`."""

import sys

from slurmray.cli import main

if __name__ == "__main__":
    sys.exit(main())
