"""Spica: a smart sweeper for LLM serving deployments."""
