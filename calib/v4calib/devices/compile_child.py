"""The child of `compiler`: reads points as JSON lines, launches each once, answers a reason or null.

What kernels print must not reach the replies, so stdout is put aside first.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO

from v4calib.grid import Point
from v4calib.operations import LaunchedOperation, operation


def serve(requests: IO[str], replies: IO[str], device: str) -> None:
    """Until the requests end."""
    for line in requests:
        request = json.loads(line)
        reason = attempt(request["operation"], Point.of(request["point"]), device)
        replies.write(json.dumps({"reason": reason}) + "\n")
        replies.flush()


def attempt(name: str, point: Point, device: str) -> str | None:
    """Launch one point."""
    try:
        found = operation(name)
        assert isinstance(found, LaunchedOperation)
        case = found.build(point, device, 1, kernels=True)
        case.launch(0)
        case.close()
        if device == "cuda":
            import torch

            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # the memory is the run's, not this process's
    except Exception as error:  # whatever it is, it is the reason
        text = " ".join(str(error).split())
        return f"does not compile or run: {type(error).__name__}: {text[:300]}"
    return None


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers, "cuda")
