"""Front ends: the processes that take requests, tokenise them and stream the answers.

Every prompt token costs host time before its call reaches a scheduler, whether the cache has it or not
(tokenise, hash, copy), and a front end does one prompt at a time: SGLang has one TokenizerManager
(`--tokenizer-worker-num`) for all DP ranks, vLLM as many API servers as DP ranks (`--api-server-count`),
each with one renderer thread (`renderer_num_workers` 1). A call lands on any of them.

SGLang tokenises in the event loop that also passes answers on (`TokenizerManager._tokenize_texts`), so what
arrives while a round of prompts is tokenised is seen by clients when that round is over; prompts that come
meanwhile make up the next round. vLLM tokenises in a thread, and its answers pass. (sglang 0.5.15
managers/tokenizer_manager.py; vllm 0.25.0 renderers/base.py, entrypoints/cli/serve.py.)

Leaves out: time per streamed token, and what a kernel does to spread connections over processes.
Units: integer nanoseconds.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from v4sim import streams


def server_of(seed: int, uid: int, servers: int) -> int:
    """Which of the front ends a call lands on."""
    return int(streams.uniform(streams.mix(seed, streams.ROUTING, uid)) * servers)


class _Server:
    """One process: rounds of prompts, each with its begin and end.

    Machine integers: of a million calls, Python's own would take five times the room.
    """

    __slots__ = ("begins", "ends")

    def __init__(self) -> None:
        self.begins = array("q")
        self.ends = array("q")

    def take(self, now_ns: int, cost_ns: int) -> int:
        """Tokenise a prompt after all that came before it; the moment when that is done."""
        if not self.ends or now_ns > self.ends[-1]:
            self.begins.append(now_ns)
            self.ends.append(now_ns + cost_ns)
        elif now_ns <= self.begins[-1]:
            self.ends[-1] += cost_ns
        else:
            self.begins.append(self.ends[-1])
            self.ends.append(self.ends[-1] + cost_ns)
        return self.ends[-1]


class FrontEnd:
    """The front ends of all replicas."""

    def __init__(
        self,
        replicas: int,
        servers: int,
        *,
        request_ns: int,
        token_us: float,
        holds_answers: bool,
        seed: int,
    ) -> None:
        self._servers = [[_Server() for _ in range(servers)] for _ in range(replicas)]
        self._request_ns, self._token_us = request_ns, token_us
        self._holds_answers = holds_answers
        self._seed = seed
        self._taken_by = array("i")  # of every call, in order of injection: replica · servers + server

    def ready_ns(self, replica: int, uid: int, prompt_tokens: int, now_ns: int) -> int:
        """When a call that reaches a replica now has been tokenised. Ask in order of injection."""
        servers = self._servers[replica]
        number = server_of(self._seed, uid, len(servers)) if len(servers) > 1 else 0
        self._taken_by.append(replica * len(servers) + number)
        cost_ns = self._request_ns + round(prompt_tokens * self._token_us * 1000.0)
        return servers[number].take(now_ns, cost_ns) if cost_ns else now_ns

    def seen_ns(self, moments_ns: NDArray[Any]) -> NDArray[np.int64]:
        """When clients see what the engine gave out at these moments, one per call; -1 stays."""
        seen = moments_ns.astype(np.int64)
        if not self._holds_answers:
            return seen
        taken_by = np.array(self._taken_by)
        for number, server in enumerate(chain.from_iterable(self._servers)):
            mine = np.flatnonzero(taken_by == number)
            # The last round that began before a moment is the only one that can hold an answer then.
            last = np.searchsorted(np.array(server.begins), seen[mine]) - 1
            mine, last = mine[last >= 0], last[last >= 0]
            seen[mine] = np.maximum(seen[mine], np.array(server.ends)[last])
        return seen
