"""``python -m spica``."""

import sys

from spica.cli import main

if __name__ == "__main__":
    sys.exit(main())
