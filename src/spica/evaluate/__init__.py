"""Evaluation: from a sample to a replay plan to a report, in worker processes that can be killed."""
