"""Prefix cache: span tree, named pools, and the rule that says which hits are legal."""
