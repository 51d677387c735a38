"""Mistakes people make in a CompiledModel, and what the API server answers: the field, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from apiserver.fixtures import example
from mistakes import MISTAKES, Mistake, changed

if TYPE_CHECKING:
    from apiserver.server import ApiServer

pytestmark = pytest.mark.cluster

DRY_RUN = "/apis/preheat.dev/v1alpha1/namespaces/default/compiledmodels?dryRun=All&fieldValidation=Strict"


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 25
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)


def test_the_object_they_are_made_from_is_right(apiserver: ApiServer) -> None:
    answer = apiserver.request("POST", DRY_RUN, example())
    assert answer.ok, answer.message


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_answered_with_the_field_and_the_remedy(apiserver: ApiServer, mistake: Mistake) -> None:
    answer = apiserver.request("POST", DRY_RUN, changed(example(), mistake.change))
    assert answer.status in (400, 422), answer
    assert mistake.says
    for word in mistake.says:
        assert word in answer.message
