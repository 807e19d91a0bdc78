"""Who samples: `cpu` in this process, `endpoint` behind OpenAI's interface."""
