"""Request traces: readers for every format, checks with line numbers, conversion, synthesis, description."""
