"""Every name Preheat uses in Kubernetes, once: a typo in a label is a bug no type checker finds.

The meaning of each, and who may write it, is told in docs/contracts.md; a unit test holds the two together.
"""

from __future__ import annotations

from typing import Final

from preheat_runtime import variables

GROUP: Final = "preheat.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# Kinds and their resources.
COMPILED_MODEL: Final = "CompiledModel"
COMPILED_MODEL_PLURAL: Final = "compiledmodels"
COMPILED_MODEL_INDEX: Final = "CompiledModelIndex"
COMPILED_MODEL_INDEX_PLURAL: Final = "compiledmodelindices"
# The one index of a namespace has this name: admission refers to its parameter by name, never by a selector.
INDEX_NAME: Final = "preheat"

# Set by users on pods (usually in a workload's pod template).
LABEL_MODEL: Final = "preheat.dev/model"
LABEL_INJECT: Final = "preheat.dev/inject"
INJECT_DISABLED: Final = "disabled"
ANNOTATION_CONTAINER: Final = "preheat.dev/container"
ANNOTATION_WHEN_MISSING: Final = "preheat.dev/when-missing"

# Set by users on a CompiledModel: asks for a new revision of the same ingredients; which one pods of its image get.
ANNOTATION_REBUILD: Final = "preheat.dev/rebuild"
ANNOTATION_PIN: Final = "preheat.dev/pin"

# Set by admission on pods, and by nobody else but the controller, the server and the uninstall Job.
ANNOTATION_MANIFEST: Final = "preheat.dev/manifest"
ANNOTATION_INJECTED: Final = "preheat.dev/injected"
# Set by the server on pods: how a pod says it was served (`api.served`).
ANNOTATION_SERVED: Final = "preheat.dev/served"
ANNOTATION_WAIT_SECONDS: Final = "preheat.dev/wait-seconds"
# While a pod has this gate it is not scheduled.
GATE: Final = "preheat.dev/artifact"
MANIFEST_NONE: Final = "none"
MANIFEST_PENDING: Final = "pending"
INJECTED_YES: Final = "yes"
INJECTED_NO_PREFIX: Final = "no: "

# Set by the controller on compile Jobs and their pods.
LABEL_COMPILED_MODEL: Final = "preheat.dev/compiledmodel"
LABEL_COMPILED_MODEL_UID: Final = "preheat.dev/compiledmodel-uid"
LABEL_REVISION: Final = "preheat.dev/revision"
LABEL_HARDWARE: Final = "preheat.dev/hardware"
LABEL_ATTEMPT: Final = "preheat.dev/attempt"
ANNOTATION_TARGET_KEY: Final = "preheat.dev/target-key"
# Only a Job that has this annotation can be told from one made for a template that has changed since.
ANNOTATION_TEMPLATE_HASH: Final = "preheat.dev/template-hash"
FINALIZER_RESULT: Final = "preheat.dev/result"

# Set by the controller on a workload's pod template, as `kubectl rollout restart` does.
ANNOTATION_RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"

# Set by the controller on the index.
ANNOTATION_PAUSED: Final = "preheat.dev/paused"
ANNOTATION_LEFT_OUT: Final = "preheat.dev/left-out"

# In injected pods.
CONTAINER_FETCH: Final = "preheat-fetch"
VOLUME_PREHEAT: Final = "preheat"
VOLUME_WORK: Final = "preheat-work"
VOLUME_STORE: Final = "preheat-store"
VOLUME_REPORTS: Final = "preheat-reports"
MOUNT_PREHEAT: Final = "/opt/preheat"
MOUNT_WORK: Final = "/var/cache/preheat"
MOUNT_STORE: Final = "/var/run/secrets/preheat.dev/store"
MOUNT_REPORTS: Final = "/var/run/secrets/preheat.dev/reports"
# Beside the credentials, when the chart's values name a ConfigMap that holds it.
STORE_CA_KEY: Final = "ca.crt"
STORE_CA_FILE: Final = f"{MOUNT_STORE}/{STORE_CA_KEY}"
# The token with which a pod reports how it was served, and whom it is for: it is good for nothing else.
REPORTS_TOKEN_KEY: Final = "token"  # noqa: S105 - a file's name
REPORTS_TOKEN_FILE: Final = f"{MOUNT_REPORTS}/{REPORTS_TOKEN_KEY}"
REPORTS_AUDIENCE: Final = f"{GROUP}/reports"
REPORTS_TOKEN_SECONDS: Final = 3600
SITE_DIRECTORY: Final = "/opt/preheat/site"
# Names of Secrets, not secrets.
SECRET_FETCH: Final = "preheat-fetch"  # noqa: S105
SECRET_PUBLISH: Final = "preheat-publish"  # noqa: S105

# In compile pods.
CONTAINER_TOOLKIT: Final = "toolkit"
CONTAINER_COMPILE: Final = "compile"
CONTAINER_PUBLISH: Final = "publish"
CONTAINER_LOOKUP: Final = "lookup"

# Environment of the serving container, which the runtime reads, and of Preheat's own containers.
ENV_PYTHONPATH: Final = "PYTHONPATH"
ENV_DIR: Final = variables.ENV_DIR
ENV_WORK_DIR: Final = variables.ENV_WORK_DIR
ENV_MODEL: Final = variables.ENV_MODEL
ENV_REPORTS_URL: Final = variables.ENV_REPORTS_URL
ENV_REPORTS_TOKEN: Final = variables.ENV_REPORTS_TOKEN
ENV_REPORTS_CA: Final = variables.ENV_REPORTS_CA
ENV_SERVING: Final = variables.ENV_SERVING
ENV_MANIFEST: Final = "PREHEAT_MANIFEST"
ENV_NAMESPACE: Final = "PREHEAT_NAMESPACE"
ENV_STORE_ENDPOINT: Final = "PREHEAT_STORE_ENDPOINT"
ENV_STORE_BUCKET: Final = "PREHEAT_STORE_BUCKET"
ENV_STORE_REGION: Final = "PREHEAT_STORE_REGION"
ENV_STORE_TENANT: Final = "PREHEAT_STORE_TENANT"
ENV_STORE_CREDENTIALS: Final = "PREHEAT_STORE_CREDENTIALS"
ENV_STORE_CA: Final = "PREHEAT_STORE_CA"
ENV_FETCH_TIMEOUT: Final = "PREHEAT_FETCH_TIMEOUT_SECONDS"
# Fail: whatever keeps the artifacts from being there fails the pod.
ENV_WHEN_MISSING: Final = "PREHEAT_WHEN_MISSING"
# What admission took for the image's own PYTHONPATH before any compile Job could see it; `-`: unset, `?`: unknown.
ENV_ASSUMED_PYTHON_PATH: Final = "PREHEAT_ASSUMED_PYTHONPATH"
ENV_REQUEST: Final = "PREHEAT_REQUEST"
ENV_RECOVER_JOB: Final = "PREHEAT_RECOVER_JOB"
ENV_PARTS: Final = "PREHEAT_PARTS"
ENV_LOOKUP: Final = "PREHEAT_LOOKUP"
ENV_JOB_UID: Final = "PREHEAT_JOB_UID"
