"""v4sim: replays agent traces on simulated DeepSeek-V4 serving. Importing the package loads nothing else."""

from __future__ import annotations

__version__ = "0.1.0"
