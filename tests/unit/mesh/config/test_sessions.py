from __future__ import annotations

import pytest

from mesh import config
from mesh.config.sessions import SessionConfig, SpeechConfig
from mesh.errors import ConfigError


@pytest.mark.parametrize("key", ["HANGOVER_MANUAL_MS", "PADDING_AUTO_MS", "SHORT_MERGE_MS", "SHORT_MERGE_WAIT_MS"])
def test_zero_switches_a_rule_of_finalizing_off(key: str) -> None:
    assert getattr(config.load(None, {f"LINGUA_SPEECH_{key}": "0"}).speech, key.lower()) == 0


@pytest.mark.parametrize("key", ["PAUSE_MS", "MAX_DURATION_MS", "PLAYING_MS_MAX"])
def test_a_finalizing_timeout_of_zero_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key.lower()):
        config.load(None, {f"LINGUA_SPEECH_{key}": "0"})


def test_pause_finalizes_long_before_the_session_is_idle() -> None:
    speech = SpeechConfig()
    assert speech.pause_ms + speech.hangover_auto_ms + speech.short_merge_wait_ms < speech.idle_ms


def test_record_outlives_the_wait_for_the_client() -> None:
    session = SessionConfig()
    assert session.resume_ms < session.idle_ttl_seconds * 1_000


def test_one_page_holds_a_part_of_the_mail() -> None:
    assert SessionConfig().mail_page_bytes_max < SessionConfig().mail_bytes_max
