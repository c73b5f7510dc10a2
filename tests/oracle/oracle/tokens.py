"""Token ids for a script: equal where the script says that prompts share, unlike everywhere else."""

from __future__ import annotations

from oracle.script import Script

EOS = 1
_FIRST = 3  # 0: padding, 1: end, 2: anything


class Texts:
    """Prompts and outputs by call. Outputs are decided beforehand; the last token of each ends it.

    With `own_ends` each call has an end of its own, so that equal prompts with an answer of one token differ.
    """

    def __init__(self, script: Script, *, own_ends: bool = False) -> None:
        self._next = _FIRST
        self._prompts: list[list[int]] = []
        self._outputs: list[list[int]] = []
        self.ends: set[int] = set()
        for call in script.calls:
            prompt: list[int] = []
            if call.parent is not None:
                prompt = self._prompts[call.parent][: call.shared]
                if call.shared_output:
                    prompt = prompt + self._outputs[call.parent][: call.shared_output]
            prompt = prompt + self._fresh(call.prompt - len(prompt))
            self._prompts.append(prompt)
            end = self._fresh(1)[0] if own_ends else EOS
            self._outputs.append([*self._fresh(call.output - 1), end])
            self.ends.add(end)

    def _fresh(self, count: int) -> list[int]:
        begin = self._next
        self._next += count
        return list(range(begin, begin + count))

    def prompt(self, number: int) -> list[int]:
        return list(self._prompts[number])

    def output(self, number: int, position: int) -> int:
        return self._outputs[number][position]
