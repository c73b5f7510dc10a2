"""Who listens to what of the engine: a hook that a probe leaves as it was is never called."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from v4sim.engine.probe import Probe

Hooks = list[Callable[..., None]]


class Listeners:
    """The probes of a replica by moment: their hooks, in the order in which they were added."""

    def __init__(self, probes: Iterable[Probe]) -> None:
        self.step: Hooks = []
        self.decode_block: Hooks = []
        self.tokens: Hooks = []
        self.admit: Hooks = []
        self.done: Hooks = []
        self.release: Hooks = []
        for probe in probes:
            self.add(probe)

    def add(self, probe: Probe) -> None:
        """Call the hooks of `probe` from now on, after those of all others."""
        for name, hooks in (
            ("on_step", self.step),
            ("on_decode_block", self.decode_block),
            ("on_tokens", self.tokens),
            ("on_admit", self.admit),
            ("on_done", self.done),
            ("on_release", self.release),
        ):
            if getattr(type(probe), name) is not getattr(Probe, name):
                hooks.append(getattr(probe, name))
