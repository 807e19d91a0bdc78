"""Writes tickets.jsonl: 480 made-up support tickets with their answers."""

import json
import random
from pathlib import Path

PROBLEMS = {
    "billing": ["I was charged twice", "the invoice shows the wrong VAT", "my refund is missing"],
    "shipping": ["the parcel never came", "the box arrived crushed", "I got somebody else's order"],
    "account": ["I cannot log in", "my email address has changed", "the reset link does nothing"],
    "technical": ["the app crashes at start", "sync stops halfway", "the screen stays black"],
}
HURRY = ["We open in an hour!", "Our whole shop stands still.", "I need this today."]
CALM = ["No hurry.", "Next week is fine.", "Just so that you know."]
OPENINGS = ["Hello,", "Hi team,", "Good morning,", "Dear support,"]
THINGS = ["the blue lamp", "order 4711", "my tablet", "the family plan", "the new printer"]

drawn, rows = random.Random(0), {}
while len(rows) < 480:
    team, urgent = drawn.choice(list(PROBLEMS)), drawn.random() < 0.5
    problem, closing = drawn.choice(PROBLEMS[team]), drawn.choice(HURRY if urgent else CALM)
    text = f"{drawn.choice(OPENINGS)} about {drawn.choice(THINGS)}: {problem}. {closing}"
    rows[text] = json.dumps({"team": team, "urgent": urgent})

with Path("tickets.jsonl").open("w", encoding="utf-8") as file:
    for question, answer in rows.items():
        ask, reply = (
            {"role": "user", "content": question},
            {"role": "assistant", "content": answer},
        )
        file.write(json.dumps({"messages": [ask, reply]}) + "\n")
