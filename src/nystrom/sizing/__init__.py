"""How many landmarks are enough."""
