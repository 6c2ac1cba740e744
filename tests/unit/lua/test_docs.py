from __future__ import annotations

import inspect
from pathlib import Path

from lua.engine.loader import load_scripts
from mesh.keys import Keys

DOCS = Path(__file__).parents[3] / "docs"
TABLE = {
    row[1].strip().strip("`"): row
    for row in (line.split("|") for line in (DOCS / "keys.md").read_text().splitlines() if line.startswith("| `"))
}


def test_every_key_is_in_the_table_and_nothing_else() -> None:
    methods = {name for name, _ in inspect.getmembers(Keys, inspect.isfunction) if not name.startswith("_")}
    assert set(TABLE) == methods


def test_every_key_is_spelled_as_the_code_spells_it() -> None:
    keys = Keys("p")
    spelled = {
        "node": keys.node(7, "<id>"),
        "leases": keys.leases(7, "<id>"),
        "nodes": keys.nodes(7),
        "ledger": keys.ledger(7),
        "changes": keys.changes(7),
        "view": keys.view(7),
        "pool": keys.pool(7, "<pool>"),
        "job": keys.job(7, "<job id>"),
        "binding": keys.binding(7, "<request id>"),
        "session": keys.session(7, "<id>"),
        "mail": keys.mail(7, "<id>"),
        "mailed": keys.mailed(7, "<id>"),
        "deployment": keys.deployment(),
        "presence": keys.presence("<kind>", "<id>"),
        "present": keys.present(),
        "weights": keys.weights(),
        "debounce": keys.debounce("<service>", "<version>"),
        "due": keys.due(7),
        "speeds": keys.speeds(7),
        "marks": keys.marks(7),
        "model_words": keys.model_words(7, "<id>"),
        "room": keys.room(7, "<code>"),
        "rooms": keys.rooms(7),
        "room_plan": keys.room_plan(7, "<session id>"),
        "pairing": keys.pairing(7, "<code>"),
        "pairing_asked": keys.pairing_asked(7, "<node id>"),
        "pairing_latest": keys.pairing_latest(7, "<node id>"),
        "pairing_wrong": keys.pairing_wrong(7, "<client>"),
    }
    for name, row in TABLE.items():
        documented = row[2].strip().strip("`").replace("{cNN}", "{c07}")
        assert f"p:{documented}" == spelled[name]


def test_every_key_of_a_script_has_the_type_of_the_table() -> None:
    for script in load_scripts().values():
        fields = script.header.keys + [field for group in script.header.groups.values() for field in group.keys]
        for field in fields:
            assert field.type == TABLE[field.name][3].strip(), f"{script.name}: {field.name}"


def test_every_script_that_has_a_key_is_named_for_it() -> None:
    for script in load_scripts().values():
        fields = script.header.keys + [field for group in script.header.groups.values() for field in group.keys]
        for field in fields:
            row = TABLE[field.name]
            if field.name not in ("ledger", "changes"):  # "every script that ..."
                assert script.name in row[5] + row[6], f"{script.name} uses {field.name}, docs/keys.md does not say so"
