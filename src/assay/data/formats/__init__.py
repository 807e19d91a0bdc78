"""One file per data format: how a record of that format becomes a row, and back."""
