"""What a replay measures, as far as goals read it: one file per family, each metric with unit and formula."""
