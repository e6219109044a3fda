"""The optimizer: ask for suggestions, tell what they were worth."""
