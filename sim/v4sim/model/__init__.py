"""Architecture, bytes and FLOPs of the models, and the GPUs they run on. Data and arithmetic, no time.

`spec(name)` gives a built-in model; `ModelSpec.from_file` one that you describe yourself.
"""

from __future__ import annotations

from v4sim.model.registry import model_names, spec
from v4sim.model.shapes import Layer
from v4sim.model.spec import ModelSpec

__all__ = ["Layer", "ModelSpec", "model_names", "spec"]
