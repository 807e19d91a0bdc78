"""From an experiment file to rows, models, methods and fingerprints."""
