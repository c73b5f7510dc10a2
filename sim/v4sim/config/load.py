"""Deployments from preset names, TOML files and `--set section.key=value`.

A preset is a TOML file of `v4sim/presets`; its name is matched without regard to case, spaces and
punctuation. The value of a `--set` is TOML too, except that plain words and texts need no quotes
(`engine.kind=vllm`, `engine.version=0.25`) and `none` gives the choice back to the engine. The section may be
left out where only one has such a key (`scheduler=vllm-native`). Files are strict: what pydantic or the
TOML parser does not accept is a `ConfigError` that names file, key and way out.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from v4sim.config.checks import check
from v4sim.config.deployment import Deployment
from v4sim.config.errors import from_validation, legal_keys, unknown_key
from v4sim.errors import ConfigError

DEFAULT_PRESET = "4xB200 V4-Flash DPA4+EP4 sglang"
TEXT_KEYS = frozenset({"name", "model.name", "hardware.gpu", "engine.version", "speculation.acceptance"})
_BARE_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+\-/: ]*")


def slug(name: str) -> str:
    """The name with only lower-case letters and digits left, joined by dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _preset_texts() -> dict[str, str]:
    folder = resources.files("v4sim") / "presets"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    return {f.name.removesuffix(".toml"): f.read_text(encoding="utf-8") for f in files}


def presets() -> list[str]:
    """Names of the presets, the default first, the rest in alphabetic order."""
    names = [str(tomllib.loads(text)["name"]) for text in _preset_texts().values()]
    return sorted(names, key=lambda name: (name != DEFAULT_PRESET, name))


def load(name_or_path: str | Path = DEFAULT_PRESET, sets: Sequence[str] = ()) -> Deployment:
    """A deployment by preset name or TOML path, with `section.key=value` changes applied in order.

    Raises `ConfigError`; nothing is derived yet (see `resolve`), so None still means "engine's choice".
    """
    data, where = _read(str(name_or_path))
    for text in sets:
        key, value = parse_set(text)
        key = full_key(key, f"--set {text}")
        if key in TEXT_KEYS and value is not None:
            value = value if isinstance(value, str) else text.partition("=")[2].strip()
        _put(data, key, value)
    return from_dict(data, where if not sets else f"{where} with --set")


def from_dict(data: Mapping[str, Any], where: str = "given values") -> Deployment:
    """A checked deployment from nested plain values; `where` is named in errors."""
    try:
        deployment = Deployment.model_validate(dict(data))
    except ValidationError as error:
        raise from_validation(error, where) from None
    check(deployment, where)
    return deployment


def parse_set(text: str) -> tuple[str, Any]:
    """`a.b=c` as a dotted key and a value: TOML, a bare word, or none."""
    key, equals, raw = text.partition("=")
    key, raw = key.strip(), raw.strip()
    if not equals or not key or not raw:
        raise ConfigError(f"--set {text!r} has no value: write it as section.key=value.")
    if raw.lower() == "none":
        return key, None
    try:
        return key, tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        if _BARE_WORD.fullmatch(raw):
            return key, raw
        raise ConfigError(
            f"--set {text!r}: {raw!r} is neither a TOML value nor a plain word; put text in double quotes."
        ) from None


def full_key(key: str, where: str) -> str:
    """`key` with its section, which may be left out where only one section has such a key."""
    keys = legal_keys()
    if key in keys:
        return key
    sections = {k.partition(".")[0] for k in keys}
    found = [k for k in keys if k.rsplit(".", 1)[-1] == key] if key not in sections else []
    if len(found) > 1:
        raise ConfigError(f"{key!r} ({where}) is a key of several sections: write {' or '.join(found)}.")
    if not found:
        raise unknown_key(key, where)
    return found[0]


def _put(data: dict[str, Any], key: str, value: Any) -> None:
    *path, leaf = key.split(".")
    for part in path:
        data = data.setdefault(part, {})
    data[leaf] = value


def _read(name: str) -> tuple[dict[str, Any], str]:
    """The nested values of a preset or file, and how to name it in errors."""
    texts = _preset_texts()
    wanted = slug(name)
    if wanted in texts:
        return _parse(texts[wanted], f"preset {wanted}"), f"preset {wanted}"
    path = Path(name)
    if not path.is_file():
        near = difflib.get_close_matches(wanted, list(texts), 1, 0.3)
        hint = f" The nearest preset is {tomllib.loads(texts[near[0]])['name']!r}." if near else ""
        if path.suffix == ".toml" or path.parent != Path():
            raise ConfigError(f"There is no deployment file {name!r}, and no preset of that name.{hint}")
        raise ConfigError(
            f"There is no deployment preset {name!r}.{hint} Presets are: {'; '.join(presets())}. "
            "A path to a TOML file works too."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The deployment file {name!r} cannot be read as UTF-8 text: {error}.") from None
    data = _parse(text, f"file {name}")
    data.setdefault("name", path.stem)
    return data, f"file {name}"


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The deployment ({where}) is not valid TOML: {error}.") from None
