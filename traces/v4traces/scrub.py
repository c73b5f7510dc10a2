"""What may leave a log: hashes of identities, names of public models, numbers. Nothing else.

An importer never copies a string from its source into a trace. It passes identities through
`Scrubber.identity` and model names through `Scrubber.model`; every other string is dropped or mapped
to one of the schema's own words. The hash is keyed, so that without the salt nobody can test a guess
(a repository's name, a host) against the ids of a published trace.
"""

from __future__ import annotations

import re
from hashlib import blake2b

SCRUB_VERSION = 1

# The words that names of public models are made of, besides versions, sizes and dates. A name with
# any other word may be somebody's private deployment, and is hashed.
# fmt: off
_WORDS = frozenset((
    "claude", "opus", "sonnet", "haiku", "gpt", "oss", "codex", "deepseek", "flash", "pro", "dspark",
    "glm", "air", "qwen", "qwq", "coder", "kimi", "llama", "mistral", "mixtral", "codestral",
    "devstral", "gemini", "gemma", "grok", "minimax", "phi", "nova", "lite", "mini", "nano", "turbo",
    "max", "plus", "large", "medium", "small", "instruct", "chat", "base", "thinking", "reasoning",
    "reasoner", "preview", "exp", "fast", "high", "low", "latest",
))
# fmt: on
_NUMBER = re.compile(r"[a-z]?[0-9]{1,8}(\.[0-9]{1,3})*[bkmo]?")
_GLUED = re.compile(r"([a-z]+)([0-9]{1,3}(?:\.[0-9]{1,3})*)")
_LONGEST_MODEL = 48


def _is_public(name: str) -> bool:
    for word in name.split("-"):
        glued = _GLUED.fullmatch(word)  # such as qwen3.5
        if word not in _WORDS and not _NUMBER.fullmatch(word) and not (glued and glued[1] in _WORDS):
            return False
    return len(name) <= _LONGEST_MODEL and not name[0].isdigit()


class Scrubber:
    """Maps identities of one import to hex names; equal salt and identity give equal names."""

    def __init__(self, salt: bytes) -> None:
        # blake2b takes keys of at most 64 bytes.
        self._key = blake2b(salt, digest_size=32).digest()

    def identity(self, kind: str, *parts: object) -> str:
        """A name for the thing that `parts` identify; `kind` keeps ids of different things apart."""
        hashed = blake2b(key=self._key, digest_size=8)
        hashed.update(kind.encode())
        for part in parts:
            data = part if isinstance(part, bytes) else repr(part).encode()
            hashed.update(len(data).to_bytes(8, "little"))
            hashed.update(data)
        return hashed.hexdigest()

    def model(self, name: object) -> str | None:
        """The name of a public model as it is (lower case), a hash for any other, None for none."""
        if not isinstance(name, str) or not name:
            return None
        lower = name.lower()
        if _is_public(lower):
            return lower
        return f"model-{self.identity('model', name)}"
