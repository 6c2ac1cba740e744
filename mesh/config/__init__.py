"""Configuration: a TOML file, then `LINGUA_<SECTION>_<KEY>` from the environment, validated once at start.

Every setting has its unit in its name and its bounds in its type. An unknown key is an error. Lists in the environment
are separated by commas; tables, and lists of them, are JSON. config.example.toml lists every key with its default; it
is generated from the comments of this package (tools/config_example.py).
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from mesh.config.base import Section
from mesh.config.jobs import JobConfig, NodeConfig
from mesh.config.network import (
    BrokerConfig,
    EdgeConfig,
    LinkConfig,
    LogConfig,
    MeshConfig,
    ProcessConfig,
    RedisConfig,
    SelectorConfig,
)
from mesh.config.scheduler import ModelsConfig, ModulesConfig, PoolsConfig, SpeedConfig, check_pools
from mesh.config.sessions import PairingConfig, RoomsConfig, SessionConfig, SpeechConfig
from mesh.config.weights import Weights
from mesh.errors import ConfigError


class Config(Section, frozen=True):
    """All sections."""

    mesh: MeshConfig = MeshConfig()
    process: ProcessConfig = ProcessConfig()
    link: LinkConfig = LinkConfig()
    broker: BrokerConfig = BrokerConfig()
    redis: RedisConfig = RedisConfig()
    edge: EdgeConfig = EdgeConfig()
    node: NodeConfig = NodeConfig()
    speed: SpeedConfig = SpeedConfig()
    weights: Weights = Weights()
    pools: PoolsConfig = PoolsConfig()
    models: ModelsConfig = ModelsConfig()
    modules: ModulesConfig = ModulesConfig()
    job: JobConfig = JobConfig()
    session: SessionConfig = SessionConfig()
    speech: SpeechConfig = SpeechConfig()
    rooms: RoomsConfig = RoomsConfig()
    pairing: PairingConfig = PairingConfig()
    selector: SelectorConfig = SelectorConfig()
    log: LogConfig = LogConfig()


def load(path: str | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration of `path` (or LINGUA_CONFIG) with the environment on top; ConfigError if it is invalid."""
    environ = os.environ if environ is None else environ
    path = path or environ.get("LINGUA_CONFIG")
    tree = _read_toml(path) if path else {}
    origin = path or "environment"
    for name, text in environ.items():
        if name.startswith("LINGUA_") and name != "LINGUA_CONFIG":
            _apply(tree, name, text)
    try:
        config = msgspec.convert(tree, Config, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {error}. See config.example.toml for every key.") from None
    check_pools(config.pools)
    return config


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _read_json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{name} is not valid JSON: {error}") from None


def _apply(tree: dict[str, Any], name: str, text: str) -> None:
    section, _, key = name.removeprefix("LINGUA_").lower().partition("_")
    hints = get_type_hints(Config).get(section)
    types = get_type_hints(hints) if hints else {}
    if key not in types:
        raise ConfigError(f"{name} names no setting. The form is LINGUA_<SECTION>_<KEY>, as in LINGUA_EDGE_PORT.")
    value: Any = text
    if types[key] == list[str]:
        value = [part for part in text.split(",") if part]
    elif text.startswith(("[", "{")):
        value = _read_json(name, text)
    # msgspec parses numbers and booleans from text, and its error names the key.
    values = tree.setdefault(section, {})
    if isinstance(values, dict):  # otherwise validation reports the section
        values[key] = value
