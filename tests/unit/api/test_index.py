"""The index's text: what the controller writes is what is read, and what cannot be said is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preheat_operator.api.enums import Admission
from preheat_operator.api.index import (
    ImageEntry,
    Index,
    IndexTextError,
    ModelEntry,
    Waiting,
    parse,
    render,
    unsayable_python_path,
)
from preheat_operator.injection.reading import Reading

DIGEST = "sha256:" + "a" * 64
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
# Whatever a pod's author may write as an image, with the marks of the index's own grammar among it.
IMAGES = st.text(st.sampled_from("abz019./:@-_|= \n"), min_size=1, max_size=20)
FIELDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)
DIGESTS = st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)

PATHS = FIELDS.filter(lambda path: path not in ("-", "?"))
WAITINGS = st.builds(
    Waiting, known=st.just(True), python_path=st.none() | PATHS, deployment=st.none() | NAMES
) | st.builds(Waiting, deployment=st.none() | NAMES)


@st.composite
def indices(draw: st.DrawFn) -> Index:
    models = draw(st.lists(NAMES, unique=True, max_size=6))
    entries = [
        ModelEntry(
            model=model,
            when_missing=draw(st.sampled_from(Admission)),
            waiting=draw(st.none() | WAITINGS),
            wait_seconds=draw(st.integers(0, 10_000)),
            container=draw(st.none() | NAMES),
            serving=draw(st.none() | FIELDS.filter(lambda text: text != "-")),
        )
        for model in models
    ]
    pairs = draw(st.lists(st.tuples(st.sampled_from(models), FIELDS), unique=True, max_size=8)) if models else []
    images = [
        ImageEntry(
            model=model,
            image=image.replace("|", "_").replace("=", "_"),
            manifest=draw(DIGESTS | st.just("none")),
            python_path=draw(st.none() | PATHS),
        )
        for model, image in pairs
    ]
    unique = {(entry.model, entry.image): entry for entry in images}
    return Index(models=tuple(entries), images=tuple(unique.values()))


@given(indices())
def test_what_is_written_is_what_is_read(index: Index) -> None:
    text = render(index)
    read = parse(text)
    assert sorted(read.models) == sorted(index.models)
    assert {(e.model, e.image): e for e in read.images} == {(e.model, e.image): e for e in index.images}
    assert render(read) == text


@given(indices())
def test_admission_s_search_finds_what_the_grammar_says(index: Index) -> None:
    """Admission does not parse: it looks for a mark. For every entry both must come to the same."""
    text = render(index)
    for model in index.models:
        for image in [entry.image for entry in index.images] + ["not-there"]:
            pod = {
                "metadata": {"labels": {"preheat.dev/model": model.model}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            }
            reading = Reading(pod, text)
            assert reading.known
            assert reading.when_missing == model.when_missing
            assert reading.container == (model.container or "c")
            assert reading.serving == model.serving
            right = [entry for entry in index.images if (entry.model, entry.image) == (model.model, image)]
            if reading.position < 0:
                continue
            assert reading.listed == bool(right)
            assert reading.ready == bool(right and right[0].manifest != "none")
            assert reading.waits == (not right and model.when_missing == Admission.WAIT)
            assert reading.fails == (not reading.ready and model.when_missing == Admission.FAIL)
            if reading.waits or reading.fails:
                known = model.waiting is not None and model.waiting.known
                assert reading.guess == ((model.waiting.python_path or "-") if model.waiting and known else "?")
                assert reading.wait_seconds == str(model.wait_seconds or 480)
            elif right:
                assert reading.digest == right[0].manifest
                assert reading.image_path == (right[0].python_path or "").replace("$(", "$$(")


@given(indices(), NAMES, IMAGES)
def test_no_pod_finds_what_is_not_there(index: Index, model: str, image: str) -> None:
    """Also images with marks of the grammar in them find nothing but an entry of the index."""
    pod = {
        "metadata": {"labels": {"preheat.dev/model": model}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    reading = Reading(pod, render(index))
    assert reading.known == (model in {entry.model for entry in index.models})
    if reading.ready:
        assert reading.digest in {entry.manifest for entry in index.images}


def test_the_text_of_the_contract() -> None:
    index = Index(
        models=(ModelEntry(model="b"), ModelEntry(model="a", when_missing=Admission.PAUSED, container="server")),
        images=(
            ImageEntry(model="b", image="r/b:2", manifest=DIGEST),
            ImageEntry(model="a", image="r/a:1", manifest=DIGEST, python_path="/app:/lib"),
        ),
    )
    assert render(index) == f"\na Paused 0 server\nb Cold 0 -\na|r/a:1={DIGEST} /app:/lib\nb|r/b:2={DIGEST} -\n"
    assert render(Index()) == "\n"
    assert parse("\n") == Index()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (None, None),
        ("/app", None),
        ("/app:/lib", None),
        ("/my app", "blank"),
        ("/app\n", "control"),
        ("/größe", "ASCII"),
        ("-", "unset"),
        ("?", "unknown"),
        ("", "empty"),
    ],
)
def test_paths_that_cannot_be_said(path: str | None, why: str | None) -> None:
    answer = unsayable_python_path(path)
    assert (answer is None) == (why is None)
    if why is not None:
        assert why in str(answer)
        with pytest.raises(IndexTextError, match="PYTHONPATH of i"):
            render(
                Index(
                    models=(ModelEntry(model="m"),),
                    images=(ImageEntry(model="m", image="i", manifest=DIGEST, python_path=path),),
                )
            )


def test_a_model_whose_pods_wait_says_what_they_need() -> None:
    def line(**waiting: Any) -> str:
        entry = ModelEntry(model="m", when_missing=Admission.AUTO, wait_seconds=480, waiting=Waiting(**waiting))
        return render(Index(models=(entry,)))

    assert line() == "\nm Auto 480 - - ? -\n"
    assert line(known=True) == "\nm Auto 480 - - - -\n"
    assert line(known=True, python_path="/app", deployment="vision") == "\nm Auto 480 - - /app vision\n"
    failed = Index(models=(MODEL,), images=(ImageEntry(model="m", image="i", manifest="none"),))
    assert render(failed) == "\nm Cold 0 -\nm|i=none -\n"


MODEL = ModelEntry(model="m")
REFUSED = {
    "model with a blank": Index(models=(ModelEntry(model="a b"),)),
    "model with a bar": Index(models=(ModelEntry(model="a|b"),)),
    "container with a newline": Index(models=(ModelEntry(model="m", container="a\nb"),)),
    "serving with a blank": Index(models=(ModelEntry(model="m", serving="a b"),)),
    "empty serving": Index(models=(ModelEntry(model="m", serving=""),)),
    "negative wait": Index(models=(ModelEntry(model="m", wait_seconds=-1),)),
    "serving that means none": Index(models=(ModelEntry(model="m", serving="-"),)),
    "a guess that means unknown": Index(models=(ModelEntry(model="m", waiting=Waiting(known=True, python_path="?")),)),
    "a guess with a blank": Index(models=(ModelEntry(model="m", waiting=Waiting(known=True, python_path="/a b")),)),
    "deployment with a blank": Index(models=(ModelEntry(model="m", waiting=Waiting(deployment="a b")),)),
    "model twice": Index(models=(MODEL, MODEL)),
    "image with a blank": Index(models=(MODEL,), images=(ImageEntry(model="m", image="a b", manifest=DIGEST),)),
    "image with our mark": Index(models=(MODEL,), images=(ImageEntry(model="m", image="a=b", manifest=DIGEST),)),
    "no digest": Index(models=(MODEL,), images=(ImageEntry(model="m", image="a", manifest="latest"),)),
    "image twice": Index(models=(MODEL,), images=(ImageEntry(model="m", image="a", manifest=DIGEST),) * 2),
    "image of no model": Index(images=(ImageEntry(model="m", image="a", manifest=DIGEST),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_said_is_refused(name: str) -> None:
    with pytest.raises(IndexTextError):
        render(REFUSED[name])


@pytest.mark.parametrize(
    "text",
    ["", "m Cold 0 -\n", "\nm Cold 0 -", "\nm Cold 0\n", "\nm Warm 0 -\n", "\nm Cold x -\n", "\nm  Cold 0 -\n",
     "\nm|a=sha256:abc -\n", f"\nm|a={DIGEST}\n", "\n\n", "\nm Cold 00 -\n",
     "\nm Wait 0 - -\n", "\nm Wait 0 - - -\n", "\nm Wait 0 - - - - -\n"],
)  # fmt: skip
def test_texts_that_are_no_index(text: str) -> None:
    with pytest.raises(IndexTextError):
        parse(text)
