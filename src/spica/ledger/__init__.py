"""The durable record of a run: one SQLite file in the run folder. See ``docs/runs.md``."""

from spica.ledger.faults import DISK_ERRORS, writing_in
from spica.ledger.lock import LOCK_FILE
from spica.ledger.records import AskRecord, RunIdentity, SuggestionRecord, TellRecord, TrialRecord
from spica.ledger.store import LEDGER_FILE, SCHEMA_VERSION, Ledger

__all__ = [
    "DISK_ERRORS",
    "LEDGER_FILE",
    "LOCK_FILE",
    "SCHEMA_VERSION",
    "AskRecord",
    "Ledger",
    "RunIdentity",
    "SuggestionRecord",
    "TellRecord",
    "TrialRecord",
    "writing_in",
]
