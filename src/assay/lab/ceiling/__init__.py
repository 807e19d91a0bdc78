"""What demonstrations can do at all for an experiment, before a selector is built."""
