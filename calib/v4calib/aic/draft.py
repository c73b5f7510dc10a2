"""A profile in the making that reads published tables."""

from __future__ import annotations

from collections.abc import Mapping

from v4calib.aic.source import PACKAGE, VERSION, Source, Table
from v4calib.draft import Draft as BaseDraft
from v4sim.cost.operation import Provenance
from v4sim.cost.profile import Profile

COMMIT = "095f58a51c4c"
DEVICE = {
    "b200": "NVIDIA B200",
    "b300": "NVIDIA B300",
    "gb200": "NVIDIA GB200",
    "gb300": "NVIDIA GB300",
    "h100": "NVIDIA H100 SXM",
    "h200": "NVIDIA H200",
}


class Draft(BaseDraft):
    """A profile while it is built from the tables of one GPU."""

    def __init__(self, gpu: str, source: Source) -> None:
        super().__init__(gpu)
        self.source = source

    def table(self, op: str, framework: str, version: str, name: str) -> Table:
        return self.source.table(self.gpu, op, framework, version, name)

    def has(self, op: str, framework: str, version: str, name: str) -> bool:
        return self.source.has(self.gpu, op, framework, version, name)

    def published(self, key: str, table: str, libraries: Mapping[str, str], kernel: str | None = None) -> str:
        """Provenance of one published table of this GPU; returns its key."""
        self.provenances.setdefault(
            key,
            Provenance(
                kind="published",
                source=f"{PACKAGE} {VERSION} (Apache-2.0, commit {COMMIT}), {table}",
                timing=None,
                kernel=kernel,
                commit=None,
                gpu=DEVICE[self.gpu],
                driver=None,
                clocks=None,
                libraries=dict(libraries),
            ),
        )
        return key

    def profile(self, description: str) -> Profile:
        """The finished profile."""
        return self.finished(self.gpu, description, f"v4calib import aiconfigurator ({PACKAGE} {VERSION})")
