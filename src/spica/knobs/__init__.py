"""The table of knobs, and what one of its settings may hold."""
