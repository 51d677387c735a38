"""`preheat why` as it prints, and how it ends where nothing can be asked. On a real cluster: tests/e2e/test_reports.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from preheat_operator.cli import exits
from preheat_operator.cli.why import as_json, lines
from preheat_operator.explain.decide import explain
from preheat_operator.explain.gathered import Gathered

if TYPE_CHECKING:
    from unit.cli.conftest import Place

POD = {
    "metadata": {"name": "web-1", "namespace": "prod", "labels": {}},
    "spec": {"containers": [{"name": "c", "image": "i:1"}]},
}


def test_it_says_what_why_and_what_to_do() -> None:
    found = Gathered(pod=POD)
    text = "\n".join(lines(found, explain(found)))
    assert "pod       prod/web-1, container c" in text
    assert "served    cold" in text
    assert "(NotLabelled)" in text
    assert "remedy    Add the label preheat.dev/model" in text


def test_for_programs() -> None:
    found = Gathered(pod=POD)
    said = as_json(found, explain(found))
    assert said["outcome"] == "cold"
    assert said["cause"] == "NotLabelled"
    assert (said["pod"], said["namespace"], said["image"], said["manifest"]) == ("web-1", "prod", "i:1", None)


def test_without_a_cluster(place: Place) -> None:
    ended = place.preheat("why", "web-1", KUBECONFIG=str(place.folder / "none"))
    assert ended.code == exits.USAGE
    assert "KUBECONFIG" in ended.err


@pytest.mark.parametrize("words", [["-n", "prod"], []])
def test_with_a_cluster_that_does_not_answer(place: Place, words: list[str]) -> None:
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    (place.folder / "config").write_text(yaml.safe_dump(config))
    ended = place.preheat("why", *words, "web-1", KUBECONFIG=str(place.folder / "config"))
    assert ended.code == exits.UNREACHABLE
    assert "cannot be reached" in ended.err
