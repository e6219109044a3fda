"""Deployments: worker shapes and which exist and fit, the concrete sample, projection onto the pool."""
