"""Files to run a candidate from: manifests, launch scripts, configurations that pin it."""
