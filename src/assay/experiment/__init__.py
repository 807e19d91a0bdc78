"""The experiment file: its tables as frozen models, reading, overriding, writing, reference."""
