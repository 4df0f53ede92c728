"""Documents as producers, people and files give them: records, their limits, and who must stay forgotten."""
