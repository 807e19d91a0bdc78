"""A checkpoint behind OpenAI's HTTP interface, on this machine alone."""
