"""Observe, plan, apply: the work on one key, from reading to the one status write."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from preheat_operator.api import names
from preheat_operator.cluster import apply, resources
from preheat_operator.cluster.client import ApiError
from preheat_operator.cluster.figures import Figures
from preheat_operator.cluster.gates import let_go
from preheat_operator.cluster.invalid import report_invalid
from preheat_operator.cluster.keys import Key, ModelKey, NamespaceKey
from preheat_operator.cluster.observe import now, observe_children, observe_model, observe_namespace
from preheat_operator.plan.attention import SeenPods
from preheat_operator.plan.model import plan_gone, plan_model
from preheat_operator.plan.namespace import plan_namespace

if TYPE_CHECKING:
    from preheat_operator.cluster.client import Api
    from preheat_operator.cluster.queue import WorkQueue
    from preheat_operator.plan.installation import Installation
    from preheat_operator.plan.namespace import NamespacePlan
    from preheat_operator.plan.observed import ModelPlan, Observed

_LOG = logging.getLogger(__name__)
# Each round avoids at least one name or learns of one refusal; profiles and forged Jobs are few.
_MAX_ROUNDS = 12
# A new Job's pod is looked at before the first event about it can be relied on.
_AFTER_CREATION_SECONDS = 15.0

WorkloadName = tuple[str, str, str]


@dataclass(kw_only=True)
class Reconciler:
    """Works on keys. `followers` says which models follow a workload, `seen` what of their pods was seen: hints for
    events, of which nothing is lost with the process.
    """

    api: Api
    queue: WorkQueue[Key]
    installation: Installation
    followers: dict[WorkloadName, set[ModelKey]] = field(default_factory=dict)
    figures: Figures = field(default_factory=Figures)
    seen: SeenPods = field(default_factory=SeenPods)

    async def __call__(self, key: Key) -> float | None:
        """Work on a key; answers after how many seconds to look again."""
        if isinstance(key, NamespaceKey):
            return await self._namespace(key)
        return await self._model(key)

    async def _model(self, key: ModelKey) -> float | None:
        raw = await self.api.get(resources.compiled_models(key.namespace, key.name))
        if raw is None:
            await self._gone(key)
            return None
        try:
            observed = await observe_model(self.api, key, raw)
        except ValidationError as error:
            try:
                await report_invalid(self.api, raw, error, now())
            except ApiError as refused:
                if refused.status in (404, 409):
                    return 1.0
                raise
            return None
        self._follow(key, observed)
        observed, plan = await self._make_jobs(observed)
        model = observed.model
        if plan.status is not None:
            try:
                written = await apply.write_status(self.api, model, plan.status)
            except ApiError as error:
                # Changed, deleted, or deleted and made again meanwhile: the event about it is on its way.
                if error.status in (404, 409):
                    return 1.0
                raise
            self.figures.take(key, before=model.status, after=plan.status)
            if written:
                for announcement in plan.announcements:
                    await apply.announce(self.api, model, announcement, at=observed.now.isoformat())
                self.queue.add(NamespaceKey(key.namespace))
        else:
            self.queue.add(NamespaceKey(key.namespace))
        await self._clear_up(key.namespace, plan)
        if plan.create:
            return min(plan.look_again_seconds or _AFTER_CREATION_SECONDS, _AFTER_CREATION_SECONDS)
        return plan.look_again_seconds

    async def _make_jobs(self, observed: Observed) -> tuple[Observed, ModelPlan]:
        """Make the plan's Jobs; what the API server will not have becomes part of what is observed, and is planned for."""
        for _ in range(_MAX_ROUNDS):
            plan = plan_model(observed, self.installation)
            taken: set[str] = set()
            refused: dict[str, str] = {}
            # All are checked before any is made: a template that is refused must not leave half the profiles compiling.
            for job in (*plan.check, *plan.create):
                refusal = await apply.check_job(self.api, job)
                if refusal is not None:
                    refused[job["metadata"]["name"]] = refusal
            for job in () if refused else plan.create:
                made, refusal = await apply.make_job(self.api, job)
                if made == apply.Made.TAKEN:
                    taken.add(job["metadata"]["name"])
                elif made == apply.Made.REFUSED:
                    refused[job["metadata"]["name"]] = refusal
            if not taken and not refused:
                return observed, plan
            observed = replace(observed, taken=observed.taken | taken, refused={**observed.refused, **refused})
        return observed, plan_model(observed, self.installation)

    async def _clear_up(self, namespace: str, plan: ModelPlan) -> None:
        for job in plan.stop:
            await apply.stop_job(self.api, namespace, job)
        for pod in plan.release:
            await apply.release_pod(self.api, namespace, pod)

    async def _gone(self, key: ModelKey) -> None:
        """The model is not there: let go of everything that carries its name and was made for a model of ours."""
        jobs, pods = await observe_children(self.api, key)
        uids = {job.owner_uid for job in jobs} | {p.labels.get(names.LABEL_COMPILED_MODEL_UID, "") for p in pods}
        for uid in uids - {""}:
            await self._clear_up(key.namespace, plan_gone(uid=uid, jobs=jobs, pods=pods))
        for followers in self.followers.values():
            followers.discard(key)
        self.figures.forget(key)
        self.seen.forget(key.namespace, key.name)
        self.queue.add(NamespaceKey(key.namespace))

    def _follow(self, key: ModelKey, observed: Observed) -> None:
        for followers in self.followers.values():
            followers.discard(key)
        reference = observed.model.spec.workload_ref
        if reference is not None:
            name = (reference.kind, key.namespace, reference.name)
            self.followers.setdefault(name, set()).add(key)

    async def _go_on(self, plan: NamespacePlan) -> None:
        """Let waiting pods go on; one that cannot (a policy of somebody else's refuses it) does not keep the others."""
        failed: ApiError | None = None
        for opening in plan.open:
            try:
                await let_go(self.api, opening)
            except ApiError as error:
                failed = error
        for pod in plan.renew:
            try:
                await apply.renew_pod(self.api, pod)
            except ApiError as error:
                failed = error
        if failed is not None:
            raise failed

    async def _namespace(self, key: NamespaceKey) -> float | None:
        observed = await observe_namespace(self.api, key.namespace, image=self.installation.image)
        plan = plan_namespace(observed)
        if plan.write is not None:
            await apply.write_index(self.api, key.namespace, plan.write)
        if plan.delete_index:
            await apply.delete_index(self.api, key.namespace)
        for name in plan.wake:
            self.queue.add(ModelKey(key.namespace, name))
        for pod, text in plan.annotate:
            await apply.annotate_pod(self.api, pod, text)
        for due in plan.restart:
            await apply.restart_workload(self.api, due)
        # The index no longer allows what they are stuck on, so what replaces them starts as it is.
        for pod in plan.replace:
            await apply.replace_pod(self.api, pod)
        await self._go_on(plan)
        return plan.look_again_seconds
