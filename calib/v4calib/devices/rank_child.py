"""One rank of `ranks`: joins its group, then verifies and times collectives as it is asked, in JSON lines.

Values are small integers, whose sums over eight ranks BF16 holds exactly, so a result is right or wrong
without a tolerance. On a GPU a sample is the mean of several launches between two CUDA events, from a
captured graph or launch by launch; on a CPU the wall clock of one, since other processes do the work.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import IO, Any

_UNROLL = 20
_JOIN = timedelta(seconds=100)
_VALUES = 29  # times eight ranks stays below 256


class Rank:
    """This process in its group."""

    def __init__(self, device: str, rank: int, size: int, store: str) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self._rank, self._size, self._cuda = rank, size, device == "cuda"
        if self._cuda:
            torch.cuda.set_device(rank)
        torch.set_num_threads(1)
        self._device = f"cuda:{rank}" if self._cuda else "cpu"
        backend = "nccl" if self._cuda else "gloo"
        dist.init_process_group(
            backend, init_method=f"file://{store}", rank=rank, world_size=size, timeout=_JOIN
        )
        self._key: tuple[str, int] | None = None
        self._launch: Callable[[], Any] = lambda: None
        self._refill: Callable[[], Any] = lambda: None
        self._output: Any = None
        self._graph: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What is asked of all ranks at once."""
        way, size = request["way"], request["bytes"]
        if self._key != (way, size):
            self._prepare(way, size)
        if request["what"] == "verify":
            return {"wrong": self._verify(way)}
        samples = range(request["count"])
        if not self._cuda:
            return {"us": [self._wall_us() for _ in samples]}
        run = self._captured() if request["mode"] == "graph" else self._repeated
        return {"us": [self._event_us(run) for _ in samples]}

    def _values(self, rank: int, count: int) -> Any:
        at = self._torch.arange(count, device=self._device)
        return ((at + 7 * rank) % _VALUES).to(self._torch.bfloat16)

    def _prepare(self, way: str, size: int) -> None:
        dist, torch = self._dist, self._torch
        self._key, self._graph, self._output = (way, size), None, None
        count = max(size // 2 // self._size, 1) * self._size
        part = count // self._size
        brought = self._values(self._rank, part if way == "all_gather" else count)
        made = torch.empty(
            part if way == "reduce_scatter" else count, dtype=torch.bfloat16, device=self._device
        )
        self._output = brought if way == "all_reduce" else made
        fresh = brought.clone()  # a reduction in place grows: by 8^20 over the launches of one sample at most
        self._refill = (lambda: brought.copy_(fresh)) if way == "all_reduce" else (lambda: None)
        self._launch = {
            "all_reduce": lambda: dist.all_reduce(brought),
            "all_gather": lambda: dist.all_gather_into_tensor(made, brought),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(made, brought),
            "all_to_all": lambda: dist.all_to_all_single(made, brought),
        }[way]

    def _verify(self, way: str) -> str | None:
        torch, size, rank = self._torch, self._size, self._rank
        self._refill()
        self._launch()
        count = self._output.numel() * (size if way == "reduce_scatter" else 1)
        part = count // size
        if way == "all_gather":
            want = torch.cat([self._values(r, part) for r in range(size)])
        elif way == "all_to_all":
            want = torch.cat([self._values(r, count)[rank * part :][:part] for r in range(size)])
        else:
            want = sum(self._values(r, count).float() for r in range(size)).to(torch.bfloat16)
            if way == "reduce_scatter":
                want = want[rank * part :][:part]
        same = torch.equal(self._output, want)
        return None if same else f"{way} differs from what the ranks brought"

    def _repeated(self) -> None:
        for _ in range(_UNROLL):
            self._launch()

    def _captured(self) -> Callable[[], Any]:
        torch = self._torch
        if self._graph is None:
            self._launch()
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            # NCCL's watchdog asks for events on a thread of its own while this one captures.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._repeated()
        replay: Callable[[], Any] = self._graph.replay
        return replay

    def _event_us(self, run: Callable[[], Any]) -> float:
        torch = self._torch
        self._refill()
        self._dist.barrier()  # all start together: waiting for a late rank is no part of a collective
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / _UNROLL

    def _wall_us(self) -> float:
        self._refill()
        self._dist.barrier()
        begin = time.perf_counter_ns()
        self._launch()
        return (time.perf_counter_ns() - begin) / 1e3


def serve(requests: IO[str], replies: IO[str], device: str, rank: int, size: int, store: str) -> None:
    """Until the requests end; an error is an answer."""
    group: Rank | None = None
    for line in requests:
        try:
            if group is None:
                group = Rank(device, rank, size, store)
            answer = group.answer(json.loads(line))
        except Exception as error:  # whatever it is, it is the reason
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not reach the replies
    kind, own, world, file = sys.argv[1:]
    serve(sys.stdin, answers, kind, int(own), int(world), file)
