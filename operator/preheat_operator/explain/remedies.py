"""What to do about each cause: one sentence, which names what to change."""

from __future__ import annotations

from typing import Final

_RECOMPILE: Final = "The artifact was made with what was in the image of the compile Job; let both be the same image."

TO_COMPILE: Final = {
    "NoCompiler": "add g++ to the image",
    "NoRoom": "give the pod's volumes room, or set TORCHINDUCTOR_CACHE_DIR to a folder that can be written to and is not mounted "
    "noexec",
}
"""What lets torch compile what nothing answers, by what keeps it from that."""

OF_REASON: Final = {
    "Package": "Nothing: it is as it should be.",
    "Caches": "Nothing: this model does not become a package (its report says why), so it is compiled from caches.",
    "Rejected": "Nothing, if that is right: compiled it was not better than eager by spec.keepIf. Else change keepIf.",
    "PackageWrong": "That is a fault of Preheat's or of torch's compiler: it is not used again in this process. Please report it. "
    "spec.keepIf.maxError says how much an answer may differ, spec.serving.onReject who answers then.",
    "NotAModule": "Only a module's own call is compiled ahead: compile the module, torch.compile(model), not a function around it.",
    "CompileOff": "Compiling is switched off in the process; remove the variable or the call that the reason names.",
    **{
        name: f"So that torch can compile: {how}. Or mend what else the reason names."
        for name, how in TO_COMPILE.items()
    },
    "NotExecutable": "The node mounts its pods' volumes noexec (the kubelet's folder, by default /var/lib/kubelet). Mount that "
    "without noexec: a package is code that is loaded from there.",
    "NoRevision": "Replace the pod now that a revision is ready, or wait until one is: kubectl describe compiledmodel.",
    "StoreUnreachable": "Look at the store and at what lies between it and the node (NetworkPolicies, DNS, proxies), "
    "then replace the pod; fetch.timeoutSeconds is the chart's value for a slow one.",
    "StoreDenied": "Create or mend the Secret with the store's read-only credentials in this namespace (store.fetchSecret; "
    "default preheat-fetch), then replace the pod.",
    "Corrupt": "What the store holds is not what was published. Delete the CompiledModel's revision by changing its spec "
    "or image so that it is compiled anew, and find out who may write to the bucket.",
    "FetchFailed": "See what fetch says: a full volume or too little memory for the container it copies its resources from.",
    "TorchDiffers": _RECOMPILE + " Often a package was installed later than the image was built, or the tag was moved.",
    "PythonDiffers": _RECOMPILE + " Often another Python starts the server than the one that compiled.",
    "CpuDiffers": "Set spec.hardware[].cpuIsa to a class that every node of these pods has, or keep the pods from older nodes.",
    "GpuDiffers": "Add a hardware profile with a nodeSelector for the GPUs these pods run on.",
    "CompileArguments": "Name mode and options of the call in spec.torch, or call torch.compile(model) without them.",
    "ProcessState": "Call the model as it was compiled: under torch.inference_mode(), with spec.torch.autocast as it is in "
    "the process, and with torch's numeric settings as they are when the factory has run.",
    "LibraryFailed": "That is a fault of Preheat's; eager or torch answers. Please report it with the pod's log.",
    "CallNotCovered": "Add a bucket for these shapes to spec.torch.modules[].buckets, or widen one with dims.",
    "CachesNotUsed": "Leave the Inductor cache variables to Preheat, and give PREHEAT_WORK_DIR room.",
    "ModelDiffers": "spec.torch.factory must build the model that the server compiles: the same code, attributes, mode, "
    "dtypes and devices. The reason names the first difference.",
    "TargetsFailed": "Mend what the compile Job could not do: kubectl describe compiledmodel, and the targets there.",
    "Other": "See the reason, and the pod's log.",
}
"""By class of reason, as the runtime gives it."""

NOT_LABELLED: Final = "Add the label preheat.dev/model: <name of the CompiledModel> to the pod template."
INJECT_DISABLED: Final = "Remove the label preheat.dev/inject from the pod template."
NOT_SEEN: Final = (
    "Replace the pod once a CompiledModel is ready in its namespace. Where that changes nothing: pods in kube-system and in "
    "Preheat's own namespace are never injected, and the chart's injection policy must be installed."
)
NO_MODEL: Final = "Create the CompiledModel, or correct the label preheat.dev/model."
REPLACE: Final = "Replace the pod: kubectl delete pod, or kubectl rollout restart of its workload."
PAUSED: Final = "Mend what the condition says; injection goes on by itself then."
UNSEEN: Final = (
    "A revision is made for the image that spec.workloadRef's pods have, written in the same words. Point it at this pod's "
    "workload, or let both have the same image."
)
SUSPENDED: Final = "Set spec.suspend to Disabled."
TAKEN_BACK: Final = (
    "Find out why in the logs of the pods that had it (preheat-mismatch, or a crash), then change the image or the spec: that "
    "makes another revision."
)
WAIT: Final = "Wait, then replace the pod."
CONDITION: Final = "Do what the condition asks for, then replace the pod."
REFUSED: Final = "Change what the annotation names in the pod template."
POD_WAITS: Final = "Wait until its containers run; kubectl describe pod says what it waits for."
SWITCHED_OFF: Final = "Remove PREHEAT_DISABLE from the container's environment."
LOGS: Final = "Ask again with the right to read logs (get pods/log)."
LOG_OFF: Final = "Remove PREHEAT_LOG=off, or read /var/cache/preheat/reports.jsonl in the container."
AUTOLOAD: Final = "Remove TORCH_DEVICE_BACKEND_AUTOLOAD from the environment, or set it to 1."
ISOLATED: Final = (
    "Start Python without -I and -E: with them it does not look at PYTHONPATH, which brings the runtime in."
)
PATH_REPLACED: Final = (
    "Let the command add to PYTHONPATH what it needs (PYTHONPATH=/mine:$PYTHONPATH) and keep the rest of the environment: "
    "/opt/preheat/site in it brings the runtime in."
)
NOT_LOADED: Final = (
    "Wait until the process has imported torch. Where it has: see what starts it, in the image too. python -I or -E, a start "
    "script that sets PYTHONPATH anew or clears the environment (env -i, sudo, su -), and TORCH_DEVICE_BACKEND_AUTOLOAD in the "
    "image keep the runtime out; `kubectl exec POD -- env` shows what a process begins with. Pods from before this release, "
    "and logs whose beginning is gone, do not say it either."
)
NO_RECORD: Final = (
    "Send a request: the first answer of a compiled model is what is recorded. Where that changes nothing: does the process "
    "call torch.compile(model) or model.compile(), with no backend of its own?"
)
NEVER_CALLED: Final = "Call what torch.compile returned, not the model itself."
GATED: Final = (
    "Wait: it starts when its image is compiled, or cannot be, or its time is over. To start it now, cold, "
    "set spec.rollout.whenMissing of the CompiledModel to Cold."
)
MUST_BE_READY: Final = (
    "It does not start until its image is compiled (whenMissing is Fail). kubectl describe compiledmodel says what "
    "keeps it; to start without, set spec.rollout.whenMissing to Wait or Cold."
)
WAIT_ENDED: Final = (
    "kubectl describe compiledmodel says what became of its image; replace the pod once that is ready. If it only took "
    "longer, raise spec.rollout.waitTimeoutSeconds."
)
