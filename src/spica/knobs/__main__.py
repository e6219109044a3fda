"""``python -m spica.knobs`` prints ``docs/knobs.md``, with ``flags`` the table of ``docs/deploy.md``."""

import sys

from spica.knobs.document import document, flags_table

print(document() if sys.argv[1:] != ["flags"] else flags_table() + "\n", end="")
