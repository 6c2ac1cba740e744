from __future__ import annotations

from pathlib import Path

import pytest

from mesh import config
from mesh.config.scheduler import ModulesConfig, PoolsConfig, TenantPool, check_pools
from mesh.errors import ConfigError


def load(text: str, tmp_path: Path) -> config.Config:
    path = tmp_path / "lingua.toml"
    path.write_text(text, encoding="utf-8")
    return config.load(str(path), {})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("pools = [{pool_id = 1}, {pool_id = 1}]", "pools.pools: pool_id 1 is listed twice"),
        ('tenant_overrides = [{tenant_id = "t", pool_id = 16}]', "tenant 't' has pool 16, which does not exist"),
        ('pools = [{pool_id = 1}]\ntenant_overrides = [{tenant_id = "t", pool_id = 2}]', "pool 2, which does not"),
        (
            'tenant_overrides = [{tenant_id = "t", pool_id = 1}, {tenant_id = "t", pool_id = 2}]',
            "pools.tenant_overrides: tenant 't' is listed twice",
        ),
    ],
)
def test_contradicting_pools_are_refused_by_name(text: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"[pools]\n{text}\n", tmp_path)
    assert named in str(caught.value)


def test_pools_by_hash_are_numbered_up_to_their_count() -> None:
    check_pools(PoolsConfig(pool_count=2, tenant_overrides=[TenantPool(tenant_id="t", pool_id=1)]))
    with pytest.raises(ConfigError, match="pool 2"):
        check_pools(PoolsConfig(pool_count=2, tenant_overrides=[TenantPool(tenant_id="t", pool_id=2)]))


def test_every_module_that_a_module_needs_exists() -> None:
    table = ModulesConfig().table
    assert {needed for module in table.values() for needed in module.modules} <= set(table)
