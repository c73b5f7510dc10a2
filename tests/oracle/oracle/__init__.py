"""The engines' own schedulers as oracle: scripts, drivers, logs, and the replay through ours.

The drivers need the engines' wheels and run in a virtual environment of their own (`make oracle`);
scripts, logs and the replay need none of it.
"""
