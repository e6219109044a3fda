"""What better means: scores, ranking and dominance."""
