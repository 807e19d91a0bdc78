"""Builds rows, models, methods and fingerprints from an experiment file."""
