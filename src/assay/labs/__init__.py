"""The labs: a folder for each skill, with everything that knows it."""
