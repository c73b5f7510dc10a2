"""Collectives as functions of the bytes of the whole tensor.

aiconfigurator counts a collective's `message_size` in elements of two bytes: its reader multiplies elements
per token (`num_elements_per_token`), and only so do its NCCL rows reach the speed of the links (1 GiB reduced
by 8 H200: 268 GB/s of 450; taken as bytes 134). Profiles pass its numbers on as they are, so the points of
what comes from there are turned into bytes here; what was measured elsewhere counts bytes already.

Leaves out: which algorithm an engine takes at which size, which its own tables contain. Units: nanoseconds.
"""

from __future__ import annotations

from v4sim.cost.operation import Operation
from v4sim.cost.profile import Profile
from v4sim.cost.tables import Line

_NS = 1000.0
_ELEMENT_BYTES = 2
_COUNTS_ELEMENTS = "aiconfigurator"


def collective_line(profile: Profile, operation: Operation) -> Line:
    """Nanoseconds over the bytes of the whole tensor."""
    source = profile.provenance_of(operation).source
    unit = _ELEMENT_BYTES if source.startswith(_COUNTS_ELEMENTS) else 1
    values = operation.values
    return Line([unit * point for point in operation.axes[0].points], [_NS * value for value in values])
