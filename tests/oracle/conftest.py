"""The oracle's own package, and the recorded decisions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def accepted() -> dict[str, dict[str, dict[str, Any]]]:
    """engine -> script -> {reason, from}: where an accepted deviation begins."""
    return json.loads((HERE / "accepted.json").read_text())  # type: ignore[no-any-return]
