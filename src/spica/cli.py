"""The program. Imports next to nothing, so that Ctrl-C has its word from (almost) the first moment."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in typing, which takes as long to import as all the rest here
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Usage errors leave through SystemExit(2).

    Without ``argv`` this is the program itself, which may end the process here.
    """
    try:
        return _run(argv)
    except KeyboardInterrupt:  # between the blocks below, which have their own words for it
        os.write(2, b"interrupted\n")
        return 130


def _run(argv: Sequence[str] | None) -> int:
    from spica.signals import Loading, as_interrupts

    if argv is None:
        as_interrupts()
    with Loading("interrupted"):
        from spica.commands.arguments import app
        from spica.commands.guard import Guard, leave, underlying

    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with Guard(debug="--debug" in arguments) as guard:
            app(args=arguments, prog_name="spica", standalone_mode=True)
            sys.stdout.flush()
    except SystemExit as left:
        cause = underlying(left, KeyboardInterrupt, BrokenPipeError)
        if cause is None:
            if argv is None:
                leave(left.code)
            raise
        with Guard() as guard:
            raise cause from None
    if argv is None:
        leave(guard.code)
    return guard.code


if __name__ == "__main__":
    sys.exit(main())
