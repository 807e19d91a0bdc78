"""The run directory: names, status, records, metrics, index, protection. Without torch."""
