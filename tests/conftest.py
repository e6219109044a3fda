"""For all tests."""

from __future__ import annotations

import signal

# A run in the background (``nohup``, a shell's ``&``) is started with these ignored, which every process it
# starts would inherit: what is tested is how they are answered.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
