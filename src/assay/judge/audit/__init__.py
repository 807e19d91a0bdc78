"""The audit: rules over a record of reported results, each a small function."""
