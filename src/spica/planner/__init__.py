"""Planner presets, policy filters and the load-predictor sub-sweep."""
