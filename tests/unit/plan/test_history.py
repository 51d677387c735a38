"""The audit trail: what happened to each revision, when, with its digest; told from status alone."""

from __future__ import annotations

from preheat_operator.plan.history import history
from unit.plan.pods import HOT, WRONG, pod
from unit.plan.simulation import digest
from unit.plan.test_notices import miss
from unit.plan.test_taken_back import FIRST, SECOND, with_revisions


def test_what_happened_to_each_revision() -> None:
    assert history(with_revisions().model.status) == ()
    world = with_revisions(FIRST, SECOND)
    world.wait(60)
    world.served = [
        *(pod(f"w{n}", served=WRONG, manifest=SECOND) for n in range(2)),
        pod("h", served=HOT, manifest=SECOND),
    ]
    world.settle()
    world.wait(60)
    world.served = [*(pod(f"m{n}", served=miss()) for n in range(3)), pod("h", served=HOT, manifest=digest("c"))]
    world.settle()
    newest, before = (r.name for r in world.model.status.revisions)
    told = [
        (e.revision, e.what, e.manifest, str(e.at)[14:19] if e.at else "", e.words) for e in history(world.model.status)
    ]
    assert told[0] == (newest, "Needed", SECOND, "00:00", "SpecChanged, for image registry/vision:1")
    assert told[1] == (newest, "Ready", SECOND, "00:00", "targets: 1 kept; compiled on cpu")
    assert told[2] == (newest, "Served", SECOND, "", "0 pods now, at most 3 at once")
    assert told[3][:4] == (newest, "TakenBack", SECOND, "01:00")
    assert "2 of 3 pods reported wrong answers" in told[3][4]
    assert told[4] == (before, "Needed", FIRST, "00:00", "Created, for image registry/vision:1")
    assert told[6] == (before, "Served", FIRST, "", "3 pods now (3 cold), at most 3 at once")
    assert told[7][:4] == (newest, "Notice", None, "02:00")
    assert told[7][4].startswith("PodsMiss: 3 of 3 pods")
    assert len(told) == 8
