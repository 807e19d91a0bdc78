"""Whether Assay computes on a GPU what it computes on a CPU, and how fast; see `__main__`."""
