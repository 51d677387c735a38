"""The controller's environment."""

from __future__ import annotations

import itertools

import pytest

from preheat_operator.controller import Backoffs, kopf_settings
from preheat_operator.settings import Settings, SettingsError

NEEDED = {"PREHEAT_IMAGE": "i", "PREHEAT_CLUSTER_ID": "c", "PREHEAT_STORE_BUCKET": "b"}


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.from_env({k: v for k, v in NEEDED.items() if k != name})


@pytest.mark.parametrize("value", ["0", "-1", "x", "1e3", "999999999"])
def test_what_is_wrong_is_named(value: str) -> None:
    with pytest.raises(SettingsError, match="PREHEAT_RESYNC_SECONDS"):
        Settings.from_env({**NEEDED, "PREHEAT_RESYNC_SECONDS": value})


def test_defaults_and_values() -> None:
    settings = Settings.from_env({**NEEDED, "PREHEAT_IMAGE_PULL_SECRETS": "a,b", "PREHEAT_RUN_AS_USER": ""})
    assert settings.installation.tenant("prod") == "c.prod"
    assert settings.installation.image_pull_secrets == ("a", "b")
    assert settings.installation.publish_secret == "preheat-publish"
    assert settings.installation.run_as_user is None
    assert Settings.from_env(NEEDED).installation.run_as_user == 65532
    assert Settings.from_env({**NEEDED, "PREHEAT_RESYNC_SECONDS": "5"}).resync_seconds == 5


def test_patience_with_the_api_server_has_no_end_and_a_bound() -> None:
    delays = list(itertools.islice(Backoffs(), 3000))
    assert max(delays) < 40
    assert delays[0] < 1
    assert kopf_settings().networking.error_backoffs is not None
