"""``python -m spica.knobs`` prints ``docs/knobs.md``."""

from spica.knobs.table import document

print(document(), end="")
