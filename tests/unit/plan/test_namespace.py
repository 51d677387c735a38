"""The index, the breaker, and the word on pods that were not injected."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.plan.attention import needs_attention
from preheat_operator.plan.breaker import STUCK_AFTER
from preheat_operator.plan.index import index_text
from preheat_operator.plan.indexnotes import PAUSE_FOR, IndexNotes, Pause, read_notes
from preheat_operator.plan.namespace import IndexState, NamespaceObserved, NamespacePlan, needs_workload, plan_namespace
from preheat_operator.plan.objects import ContainerView, PodView
from unit.plan.simulation import INSTALLATION, START, deployment, digest, spec

HEAD = "\nvision Cold 0 -\n"


def revision(image: str, manifest: str | None, *, state: str = "Ready", path: str | None = None) -> dict[str, Any]:
    return {
        "name": f"vision-{manifest}"[:63], "image": image, "manifest": manifest, "state": state, "cause": "Created",
        "created": START.isoformat(), "specHash": "0", "pythonPath": path,
    }  # fmt: skip


def model(
    *revisions: dict[str, Any], name: str = "vision", rule: str | None = None, rollout: dict[str, Any] | None = None,
    **more: Any,
) -> CompiledModel:  # fmt: skip
    metadata = {"name": name, "namespace": "prod", "uid": "u", **more}
    status = {"revisions": list(revisions)} | ({} if rule is None else {"whenMissing": rule})
    return CompiledModel.model_validate({"metadata": metadata, "spec": spec(rollout=rollout or {}), "status": status})


def pod(name: str = "a", *, waiting: str | None = None, **more: Any) -> PodView:
    containers = {}
    if waiting is not None:
        containers["preheat-fetch"] = ContainerView(name="preheat-fetch", waiting_reason=waiting, waiting_message="w")
    base = PodView(
        name=name, namespace="prod", uid=f"uid-{name}", owner_uid="rs", owner_kind="ReplicaSet",
        labels={"preheat.dev/model": "vision"}, images={"preheat-fetch": INSTALLATION.image, "server": "v:1"},
        created_at=START, containers=containers,
        annotations={"preheat.dev/injected": "yes"},
    )  # fmt: skip
    return replace(base, **more)


def plan(*pods: PodView, models: tuple[CompiledModel, ...] = (), index: IndexState | None = None, after: float = 0,
         image: str = INSTALLATION.image, workload: dict[str, Any] | None = None) -> NamespacePlan:  # fmt: skip
    return plan_namespace(
        NamespaceObserved(
            models=models, pods=pods, index=index, image=image, now=START + timedelta(seconds=after),
            workloads={} if workload is None else {"vision": workload},
        )
    )  # fmt: skip


def test_the_newest_ready_revision_of_each_image() -> None:
    text = index_text(
        models=[
            model(
                revision("v:2", None, state="Compiling"),
                revision("v:1", digest("b"), path="/app"),
                revision("v:1", digest("a")),
                revision("v:0", digest("c")),
                revision("v:9", digest("d"), path="/a b"),
            )
        ],
        paused=False,
    )
    assert text.models == HEAD + f"vision|v:0={digest('c')} -\nvision|v:1={digest('b')} /app\n"
    assert text.left_out == ()


def test_a_paused_namespace_keeps_its_images() -> None:
    text = index_text(models=[model(revision("v:1", digest("a")))], paused=True)
    assert text.models == f"\nvision Paused 0 -\nvision|v:1={digest('a')} -\n"


def test_what_serving_says_is_on_the_models_line_where_it_is_not_the_default() -> None:
    def line(**serving: str) -> str:
        body = model(revision("v:1", digest("a"))).to_api()
        body["spec"]["serving"] = serving
        return index_text(models=[CompiledModel.model_validate(body)], paused=False).models.split("\n")[1]

    assert line() == line(onMiss="Compile", onReject="Eager", verify="After") == "vision Cold 0 -"
    assert line(verify="Before") == "vision Cold 0 - verify=Before"
    assert line(onMiss="Fail", onReject="Compile", verify="Never") == (
        "vision Cold 0 - onMiss=Fail,onReject=Compile,verify=Never"
    )


def test_the_line_of_a_model_whose_pods_wait() -> None:
    ready = revision("v:1", digest("a"), path="/app")

    def lines(*revisions: dict[str, Any], paused: bool = False, **more: Any) -> list[str]:
        return index_text(models=[model(*revisions, **more)], paused=paused).models.split("\n")[1:-1]

    image = f"vision|v:1={digest('a')} /app"
    assert lines(ready, rule="Wait") == ["vision Auto 480 - - /app vision", image]
    assert lines(ready, rule="Wait", rollout={"whenMissing": "Wait"}) == ["vision Wait 480 - - /app vision", image]
    assert lines(rule="Wait", rollout={"whenMissing": "Wait", "waitTimeoutSeconds": 9}) == [
        "vision Wait 9 - - ? vision"
    ]
    assert lines(rule="Fail", rollout={"whenMissing": "Fail"}) == ["vision Fail 480 - - ? vision"]
    assert lines(ready, rule="Cold") == ["vision Cold 0 -", image]
    assert lines(ready, rule="Cold", rollout={"waitTimeoutSeconds": 9}) == ["vision Cold 9 -", image]
    assert lines(ready, rule="Wait", paused=True) == ["vision Paused 0 -", image]
    no_path = lines(revision("v:2", None, state="Compiling"), revision("v:1", digest("a")), rule="Wait")
    assert no_path[0] == "vision Auto 480 - - - vision"
    blank = lines(revision("v:1", digest("a"), path="/a b"), rule="Wait")
    assert blank == ["vision Auto 480 - - ? vision"], "what cannot be said is not guessed"


def test_an_image_that_failed_is_said_to_get_nothing_so_that_nobody_waits_for_it() -> None:
    failed, ready = revision("v:2", None, state="Failed"), revision("v:1", digest("a"))
    images = index_text(models=[model(failed, ready, rule="Wait")], paused=False).images
    assert [(e.image, e.manifest) for e in images] == [("v:1", digest("a")), ("v:2", "none")]
    assert len(index_text(models=[model(failed, ready, rule="Cold")], paused=False).images) == 1
    again = revision("v:1", None, state="Failed")
    images = index_text(models=[model(again, ready, rule="Wait")], paused=False).images
    assert [(e.image, e.manifest) for e in images] == [("v:1", digest("a"))], "an older revision of it serves"


def held(name: str = "h", **more: Any) -> PodView:
    annotations = {"preheat.dev/manifest": "pending", "preheat.dev/injected": "no: …", "preheat.dev/wait-seconds": "90"}
    images = {"preheat-fetch": INSTALLATION.image, "server": "v:2"}
    return pod(
        name, gates=("preheat.dev/artifact",), first="server", annotations=annotations, images=images,
        fetch_env={"PREHEAT_ASSUMED_PYTHONPATH": "-"}, **more,
    )  # fmt: skip


def test_pods_that_wait_go_on_after_the_index_was_written_and_are_looked_for_again() -> None:
    both = model(revision("v:2", digest("b")), revision("v:1", digest("a")), rule="Wait")
    first = plan(held(), models=(both,), index=IndexState(models=HEAD))
    assert first.write is not None
    assert [(o.pod.name, o.manifest) for o in first.open] == [("h", digest("b"))]
    assert first.look_again_seconds == 2, "a pod may have been made in between, for what the index said until now"
    assert plan(models=(both,), index=first.write) == NamespacePlan()


def test_a_pod_that_waits_is_looked_at_again_when_its_time_is_over() -> None:
    compiling = model(revision("v:2", None, state="Compiling"), revision("v:1", digest("a")), rule="Wait")
    index = plan(models=(compiling,)).write
    answer = plan(held(), models=(compiling,), index=index, workload=deployment("v:2"), after=30)
    assert (answer.open, answer.look_again_seconds) == ((), 60)
    assert [o.manifest for o in plan(held(), index=index).open] == ["none"], "the model is gone"


def test_only_models_with_somebody_waiting_need_their_workload_read() -> None:
    assert needs_workload(model(), [held()])
    assert not needs_workload(model(), [pod(), held(labels={"preheat.dev/model": "other"})])
    assert needs_workload(model(due()), [])


def due(state: str = "Pending", image: str = "v:1") -> dict[str, Any]:
    return revision(image, digest("b")) | {"restart": {"since": START.isoformat(), "state": state}}


def test_a_restart_waits_until_the_index_has_what_the_new_pods_shall_get() -> None:
    asked, workload = model(due()), deployment("v:1")
    first = plan(models=(asked,), index=IndexState(models=HEAD), workload=workload)
    assert (first.restart, first.look_again_seconds) == ((), 2)
    (restart,) = plan(models=(asked,), index=first.write, workload=workload, after=2).restart
    assert (restart.workload, restart.since, restart.model.metadata.name) == (workload, START, "vision")
    for quiet in (
        plan(models=(model(due("Done")),), index=first.write, workload=workload),
        plan(models=(asked,), index=first.write),
        plan(models=(asked,), index=first.write, workload={"spec": workload["spec"] | {"paused": True}}),
        plan(models=(model(revision("v:2", None, state="Compiling"), due()),), workload=workload),
    ):
        assert quiet.restart == ()
    restarted = deployment("v:1")
    restarted["spec"]["template"]["metadata"] = {
        "annotations": {"kubectl.kubernetes.io/restartedAt": START.isoformat()}
    }
    assert plan(models=(asked,), index=first.write, workload=restarted).restart == ()


def test_a_pod_that_fails_on_purpose_pauses_nothing() -> None:
    index = IndexState(models=HEAD)
    failing = pod(waiting="CrashLoopBackOff", fetch_env={"PREHEAT_WHEN_MISSING": "Fail"})
    assert plan(failing, models=(model(),), index=index, after=999).write is None
    other = pod(waiting="ImagePullBackOff", fetch_env={"PREHEAT_WHEN_MISSING": "Fail"})
    assert plan(other, models=(model(),), index=index, after=999).write is not None


def test_what_does_not_fit_is_dropped_oldest_first() -> None:
    models = [model(revision("v:2", digest("b")), revision("v:1", digest("a")), name=name) for name in ("one", "two")]
    whole = index_text(models=models, paused=False)
    short = index_text(models=models, paused=False, limit=len(whole.models) - 1)
    assert len(short.models) < len(whole.models)
    assert short.models.count("v:2=") == 2
    assert short.models.count("v:1=") == 1
    assert short.left_out == ("two",)


def test_the_index_is_written_when_it_differs_and_removed_with_the_last_model() -> None:
    first = plan(models=(model(),))
    assert first.write == IndexState(models=HEAD)
    assert plan(models=(model(),), index=IndexState(models=HEAD)) == NamespacePlan()
    assert plan(index=IndexState(models=HEAD)).delete_index
    going = model(deletionTimestamp=START.isoformat())
    assert plan(models=(going,), index=IndexState(models=HEAD)).delete_index
    assert plan() == NamespacePlan()


def test_stuck_pods_pause_injection_and_are_replaced() -> None:
    index = IndexState(models=HEAD)
    stuck, lone = pod("a", waiting="ImagePullBackOff"), pod("b", waiting="ImagePullBackOff", owner_uid="")
    early = plan(stuck, models=(model(),), index=index, after=59)
    assert early.write is None
    assert early.replace == ()
    assert early.look_again_seconds == 1
    tripped = plan(stuck, lone, models=(model(),), index=index, after=60)
    assert tripped.write is not None
    assert tripped.write.models == "\nvision Paused 0 -\n"
    assert tripped.replace == (stuck,), "a pod nobody makes again is not deleted"
    assert tripped.wake == ("vision",)
    pause = tripped.write.notes.pause
    assert pause is not None
    assert "ImagePullBackOff" in pause.why


def test_a_pause_ends_with_its_time_or_with_another_image() -> None:
    pause = Pause(image=INSTALLATION.image, since=START, why="w")
    index = IndexState(models="\nvision Paused 0 -\n", notes=IndexNotes(pause=pause))
    during = plan(models=(model(),), index=index, after=PAUSE_FOR.total_seconds() - 1)
    assert during.write is None
    assert during.look_again_seconds == 1
    for over in (plan(models=(model(),), index=index, after=PAUSE_FOR.total_seconds()),
                 plan(models=(model(),), index=index, after=1, image="another")):  # fmt: skip
        assert over.write == IndexState(models=HEAD)
        assert over.wake == ("vision",)


def test_pods_stuck_on_an_old_image_are_replaced_without_a_pause() -> None:
    old = pod(waiting="ErrImagePull", images={"preheat-fetch": "old"})
    answer = plan(old, models=(model(),), index=IndexState(models=HEAD), after=STUCK_AFTER.total_seconds())
    assert answer.write is None
    assert answer.replace == (old,)


def test_other_troubles_are_nobodys_business_here() -> None:
    pods = [pod(waiting="PodInitializing"), pod(waiting="ImagePullBackOff", phase="Running"),
            pod(waiting="ImagePullBackOff", deleting=True)]  # fmt: skip
    assert plan(*pods, models=(model(),), index=IndexState(models=HEAD), after=999) == NamespacePlan()


def test_pods_without_a_word_get_one() -> None:
    silent = pod(annotations={})
    cases = {
        "there is no CompiledModel 'vision' in this namespace": plan(silent),
        "CompiledModel 'vision' had nothing ready for this pod's image when the pod was made": plan(
            silent, models=(model(),)
        ),
        "the pod was made before the CompiledModel was in the namespace's index, or no admission policy looked at it": plan(
            silent, models=(model(revision("v:1", digest("a"))),)
        ),
    }
    for words, answer in cases.items():
        assert answer.annotate == ((silent, f"no: {words}"),)
    taken = revision("v:1", digest("a"), state="TakenBack") | {
        "takenBack": {"at": START.isoformat(), "pods": 5, "wrong": 0, "crashed": 2}
    }
    ((_, words),) = plan(silent, models=(model(taken),)).annotate
    assert words.endswith("was taken back at 2026-01-01T00:00:00+00:00, since 2 of 5 pods crashed")
    disabled = pod(annotations={}, labels={"preheat.dev/model": "vision", "preheat.dev/inject": "disabled"})
    assert "preheat.dev/inject" in plan(disabled).annotate[0][1]
    for quiet in (pod(), pod(annotations={}, deleting=True), pod(annotations={}, phase="Succeeded")):
        assert plan(quiet).annotate == ()


def test_only_events_that_matter_wake_a_namespace() -> None:
    def raw(annotations: dict[str, str], waiting: str = "", phase: str = "Pending") -> dict[str, Any]:
        status = {"name": "preheat-fetch", "state": {"waiting": {"reason": waiting}}}
        return {"metadata": {"annotations": annotations}, "status": {"phase": phase, "initContainerStatuses": [status]}}

    said = {"preheat.dev/injected": "yes"}
    assert needs_attention(raw({}))
    assert needs_attention(raw({"preheat.dev/injected": "no: …", "preheat.dev/manifest": "pending"}))
    gated = raw(said) | {"spec": {"schedulingGates": [{"name": "preheat.dev/artifact"}]}}
    assert needs_attention(gated)
    gated["metadata"]["deletionTimestamp"] = START.isoformat()
    assert not needs_attention(gated)
    assert needs_attention(raw(said, "ImagePullBackOff"))
    assert not needs_attention(raw(said, "PodInitializing"))
    assert not needs_attention(raw({}, phase="Failed"))


def test_notes_survive_being_written_and_garbage_is_nothing() -> None:
    notes = IndexNotes(pause=Pause(image="i", since=START, why="w"), left_out=("a", "b"))
    assert read_notes(notes.annotations()) == notes
    for text in ("", "x", "[]", "{}", '{"since":"x","image":"i"}', '{"since":"2026-01-01T00:00:00Z"}', "[" * 9999):
        assert read_notes({"preheat.dev/paused": text}) == IndexNotes()
