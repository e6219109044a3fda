"""The sweep: ask, project, drop duplicates, evaluate, tell, record. Written on protocols only."""
