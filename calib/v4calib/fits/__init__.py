"""From measured rows to profile operations: a module a family reads a `Bench` and adds to a `Draft`."""
