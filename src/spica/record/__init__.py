"""The durable record of a run (one SQLite file) and what is read from it. See ``docs/runs.md``."""

from spica.record.faults import corrupted, explain_os, writing_in
from spica.record.lock import LOCK_FILE, RunLock, refuse_in_use
from spica.record.records import AskRecord, RunIdentity, SuggestionRecord, TellRecord, TrialRecord
from spica.record.sealed import SCHEMA_VERSION
from spica.record.store import LEDGER_FILE, NOT_BEGUN_REMEDY, Ledger

__all__ = [
    "LEDGER_FILE",
    "LOCK_FILE",
    "NOT_BEGUN_REMEDY",
    "SCHEMA_VERSION",
    "AskRecord",
    "Ledger",
    "RunIdentity",
    "RunLock",
    "SuggestionRecord",
    "TellRecord",
    "TrialRecord",
    "corrupted",
    "explain_os",
    "refuse_in_use",
    "writing_in",
]
