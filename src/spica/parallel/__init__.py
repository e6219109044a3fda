"""Parallel shapes: what they are, which exist, which fit, and how a suggestion is projected onto them."""
