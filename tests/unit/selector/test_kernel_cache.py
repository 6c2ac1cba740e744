from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from selector import kernel_cache


def test_the_place_beside_the_source_needs_no_setting(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    assert kernel_cache.find_cache_dir(environ, tmp_path) == tmp_path / "__pycache__"
    assert environ == {}


def test_a_directory_that_the_user_gave_is_kept(tmp_path: Path) -> None:
    environ = {kernel_cache.CACHE_DIR: str(tmp_path / "mine")}
    assert kernel_cache.find_cache_dir(environ, tmp_path) == tmp_path / "mine"


@pytest.mark.parametrize("given", [True, False])
def test_what_cannot_be_written_is_replaced_by_a_private_directory(tmp_path: Path, given: bool) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a directory is wanted stops root as well")
    environ = {kernel_cache.CACHE_DIR: str(blocked / "cache")} if given else {}
    chosen = kernel_cache.find_cache_dir(environ, blocked)
    assert environ[kernel_cache.CACHE_DIR] == str(chosen)
    assert chosen.stat().st_mode & 0o077 == 0 and chosen.stat().st_uid == os.getuid()


def test_a_directory_that_others_may_write_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / f"lingua-mesh-numba-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    (tmp_path / "file").write_text("")
    chosen = kernel_cache.find_cache_dir({}, tmp_path / "file")
    assert chosen != planted and chosen.parent == tmp_path


def test_of_those_that_start_together_one_compiles_at_a_time(tmp_path: Path) -> None:
    with kernel_cache.alone(tmp_path) as mine, kernel_cache.alone(tmp_path, wait_s=0) as other:
        assert (mine, other) == (True, False)
    with kernel_cache.alone(tmp_path, wait_s=0) as free_again:
        assert free_again


def test_without_a_place_for_the_lock_everyone_compiles(tmp_path: Path) -> None:
    with kernel_cache.alone(tmp_path / "nowhere") as held:
        assert not held


def test_warming_up_compiles_what_requests_will_call(tmp_path: Path) -> None:
    """A second signature would mean that the first request compiles for seconds after all."""
    script = """
from selector import kernel_cache
kernel_cache.warm_up()
from selector.core import kernel
before = kernel._choose.signatures
from mesh.config.scheduler import PoolsConfig
from selector.core.pools import PoolPlan
from selector.core.job_rows import job_rows
from tests.support.builders.selector import RULES, facts, job, table_of
plan = PoolPlan(PoolsConfig(enabled=True))
table = table_of(*((f"n{i}", facts(in_pools=f"hash.{i % 16}", pairs=["en>es"])) for i in range(100)))
rows = job_rows([job(excluded=["n1"]), job(preferred_node="n2", warm_node="n3")], table, plan)
kernel.choose(table.columns, table.index(), rows, table.speeds.prior(), RULES, 3)
kernel.choose(table.columns, table.index(), job_rows([], table, plan), table.speeds.prior(), RULES, 3)
kernel.examine(table.columns, table.index(), job_rows([job()], table, plan), table.speeds.prior(), RULES)
assert kernel._choose.signatures == before, (before, kernel._choose.signatures)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
