"""How the terminal colours a verdict."""

STYLES = {"better": "green", "worse": "red", "undecided": "yellow", "equivalent": "cyan"}
