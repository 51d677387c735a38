"""The causes of a revision are a closed list, and documented."""

from __future__ import annotations

import re
from pathlib import Path

from preheat_operator.api.enums import Cause

REVISIONS = (Path(__file__).parents[3] / "docs" / "revisions.md").read_text()


def test_every_cause_is_documented_and_no_other() -> None:
    table = REVISIONS.split("## Causes")[1].split("Of several changes")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == {cause.value for cause in Cause}
