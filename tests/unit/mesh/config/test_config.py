from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest

from mesh import config
from mesh.config.scheduler import Pool
from mesh.errors import ConfigError


def load(text: str, tmp_path: Path, **environ: str) -> config.Config:
    path = tmp_path / "lingua.toml"
    path.write_text(text, encoding="utf-8")
    return config.load(str(path), environ)


def test_defaults_without_a_file() -> None:
    assert config.load(None, {}) == config.Config()


def test_file_changes_the_settings_that_it_names(tmp_path: Path) -> None:
    settings = load("[edge]\nport = 6000\n[node]\nresource_threshold_percent = 90\n", tmp_path)
    assert settings.edge.port == 6000
    assert settings.node.resource_threshold_percent == 90.0
    assert settings.link == config.LinkConfig()


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    settings = load("[edge]\nport = 6000\n", tmp_path, LINGUA_EDGE_PORT="6001", PATH="/bin")
    assert settings.edge.port == 6001


def test_environment_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[mesh]\ncells = 4\n")
    assert config.load(None, {"LINGUA_CONFIG": str(path)}).mesh.cells == 4


def test_lists_and_booleans_in_the_environment() -> None:
    settings = config.load(
        None,
        {"LINGUA_LINK_FRONTENDS": "tcp://a:1,tcp://b:2,", "LINGUA_REDIS_CLUSTER": "True", "LINGUA_EDGE_INSECURE": "0"},
    )
    assert settings.link.frontends == ["tcp://a:1", "tcp://b:2"]
    assert settings.redis.cluster is True
    assert settings.edge.insecure is False


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[edge]\nprot = 1\n", "prot"),
        ("[egde]\nport = 1\n", "egde"),
        ("[edge]\nport = 'high'\n", "edge.port"),
        ("[edge]\nport = 70000\n", "edge.port"),
        ("[edge]\nport = -1\n", "edge.port"),
        ("[mesh]\ncells = 0\n", "mesh.cells"),
        ("[mesh]\nkey_prefix = 'a{b}'\n", "mesh.key_prefix"),
        ("[link]\nfrontends = 'tcp://a:1'\n", "link.frontends"),
        ("[link]\nbeat_ms = 0\n", "link.beat_ms"),
        ("[log]\nlevel = 'loud'\n", "log.level"),
        ("[node]\nresource_threshold_percent = 101\n", "node.resource_threshold_percent"),
        ("[job]\nattempts_max = nan\n", "job.attempts_max"),
        ("edge = 5\n", "edge"),
    ],
)
def test_invalid_setting_is_refused_by_name(text: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, tmp_path)
    assert named in str(caught.value)
    assert "lingua.toml" in str(caught.value)
    assert "config.example.toml" in str(caught.value)


@pytest.mark.parametrize("name", ["LINGUA_EDGE_PROT", "LINGUA_NOWHERE_PORT", "LINGUA_EDGE", "LINGUA_"])
def test_variable_that_names_no_setting_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        config.load(None, {name: "1"})


def test_variable_out_of_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"edge\.port"):
        config.load(None, {"LINGUA_EDGE_PORT": "99999"})


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml"):
        config.load(str(tmp_path / "gone.toml"), {})


@pytest.mark.parametrize("content", [b"[edge\n", b"\xff\xfe", b"port = \n"])
def test_invalid_toml_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.toml is not valid TOML"):
        config.load(str(path), {})


def test_every_number_is_bounded() -> None:
    for section in get_type_hints(config.Config).values():
        shape = msgspec.inspect.type_info(section)
        assert isinstance(shape, msgspec.inspect.StructType)
        for field in shape.fields:
            if isinstance(field.type, msgspec.inspect.IntType | msgspec.inspect.FloatType):
                assert field.type.ge is not None and field.type.le is not None, field.name


def test_every_setting_can_be_set_from_the_environment() -> None:
    environ = {}
    for name, section in get_type_hints(config.Config).items():
        for key, value in msgspec.structs.asdict(section()).items():
            text = ",".join(value) if isinstance(value, list) else str(value)
            if isinstance(value, dict) or key in ("pools", "tenant_overrides"):
                text = msgspec.json.encode(value).decode()
            environ[f"LINGUA_{name}_{key}".upper()] = text
    assert config.load(None, environ) == config.Config()


def test_table_in_the_environment_is_json() -> None:
    found = config.load(None, {"LINGUA_POOLS_POOLS": '[{"pool_id": 3, "required_services": ["asr"]}]'})
    assert found.pools.pools == [Pool(pool_id=3, required_services=["asr"])]
    with pytest.raises(ConfigError, match="LINGUA_POOLS_POOLS is not valid JSON"):
        config.load(None, {"LINGUA_POOLS_POOLS": "[{"})
