"""Every package called `core` is guarded by the purity contract of pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]


def test_every_core_is_in_the_purity_contract() -> None:
    contracts = {contract["id"]: contract for contract in LINTER["contracts"]}
    folders = [folder for package in LINTER["root_packages"] for folder in (ROOT / package).rglob("core")]
    cores = {".".join(folder.relative_to(ROOT).parts) for folder in folders if any(folder.glob("*.py"))}
    assert cores, "the search finds cores"
    assert set(contracts["cores"]["source_modules"]) == cores


def test_every_production_package_is_linted() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench", "loadtest", "tools"}
    assert set(LINTER["root_packages"]) == packages
