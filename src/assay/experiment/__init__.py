"""The experiment file: frozen models of its tables, reading, overriding, writing, reference."""
