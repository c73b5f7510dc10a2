"""Seeded synthetic traces whose marginals and joint facts are those of measured coding-agent sessions.

`generate` yields rows; `command` is the body of `v4traces synth`.
"""

from __future__ import annotations

from v4traces.synth.command import command
from v4traces.synth.generate import SAMPLE_SEED, SAMPLE_SESSIONS, generate
from v4traces.synth.params import SynthParams

__all__ = ["SAMPLE_SEED", "SAMPLE_SESSIONS", "SynthParams", "command", "generate"]
