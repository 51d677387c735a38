"""What code asks torch about the process: found in whatever way it is written, and compared or refused."""

import itertools
import sys
import types

import pytest
import torch

from preheat_runtime import questions
from preheat_runtime.bind import ModuleState
from preheat_runtime.identity import describe, difference
from preheat_runtime.package import CallSpec, PackageSpec, Target
from preheat_runtime.reasons import class_of

numbers = itertools.count()
NO_CODE = PackageSpec(library="model.so", library_outputs=0, constants=(), out_spec="", outputs=())


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A net whose file begins with `head` and whose `forward` has `body`, of lines; `more` are methods."""

    def make(head, body, more=""):
        name = f"preheat_questions{next(numbers)}"
        lines = "".join(f"        {line}\n" for line in body.splitlines())
        text = f"{head}\nfrom torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n{lines}{more}\n"
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        module = types.ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(text, str(file), "exec"), module.__dict__)
        return module.Net(), str(file)

    return make


DIST, THREADS = "torch.distributed", "torch.get_num_threads"
#: Head, body, what it asks, and at which line of its body.
REFUSED = {
    "module by another name": ("import torch.distributed as dist", "if dist.is_initialized():\n    x = -x\nreturn x", DIST, 0),
    "attribute of torch": ("import torch", "x = x + 1\nreturn x if torch.distributed.is_initialized() else -x", DIST, 1),
    "torch by another name": ("import torch as th", "return x if th.distributed.is_initialized() else -x", DIST, 0),
    "one function": ("from torch.distributed import all_reduce", "x = x + 1\nall_reduce(x)\nreturn x", "torch.distributed.distributed_c10d.all_reduce", 1),
    "imported when it runs": ("", "import torch.distributed as dist\nreturn x * dist.get_world_size()", DIST, 0),
    "function that is imported when it runs": ("", "x = -x\nfrom torch.distributed import get_rank\nreturn x * get_rank()", DIST, 1),
    "taken from torch when it runs": ("", "from torch import distributed\nreturn x * distributed.get_world_size()", DIST, 0),
    "functional": ("import torch.distributed._functional_collectives as funcol", "return funcol.all_reduce(x, 'sum', '0')", "torch.distributed._functional_collectives", 0),
    "in a function in it": ("import torch.distributed as dist", "def rank():\n    return dist.get_rank()\nreturn x * rank()", DIST, 1),
    "threads": ("import torch", "x = x + 1\nreturn x * torch.get_num_threads()", THREADS, 1),
    "threads by another name": ("from torch import get_num_threads as threads", "return x * threads()", THREADS, 0),
    "threads, imported when it runs": ("", "from torch import get_num_threads\nreturn x * get_num_threads()", THREADS, 0),
    "torch, imported when it runs": ("", "import torch\nreturn x * torch.get_num_threads()", THREADS, 1),
    "other threads": ("import torch", "return x * torch.get_num_interop_threads()", "torch.get_num_interop_threads", 0),
}  # fmt: skip


@pytest.mark.parametrize(("head", "body", "question", "line"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_of_other_processes_or_of_threads_is_found_with_its_line(net, head, body, question, line):
    made, file = net(head, body)
    described = describe(made)
    found, where = described.distributed
    assert found.startswith(question)
    assert where == f"{file}:{6 + line}"
    assert described.identity.asked is None
    assert described.identity.unknown == ()


@pytest.mark.parametrize("package", [NO_CODE, None])
def test_a_pod_takes_no_package_for_it(net, package):
    made, file = net("import torch.distributed as dist", "return x if dist.is_initialized() else -x")
    target = Target(identity=describe(made).identity, call=CallSpec(arguments=()), package=package)
    found = ModuleState(made).against(target)
    if package is None:
        assert found is None, "torch asks for itself"
    else:
        assert found == f"the code uses torch.distributed ({file}:6), of which a package has another process's answer"
        assert class_of("cold", f"no artifact is for this Net: main/one: {found}") == "ModelDiffers"


QUIET = {
    "another's attribute": ("import torch", "return torch.relu(x) if getattr(self, 'distributed', 0) else self.enabled(x)"),
    "a name of its own": ("import torch\ndef get_num_threads(): return 3", "return torch.relu(x) * get_num_threads()"),
    "switched, not asked": ("import torch", "with torch.backends.cudnn.flags(enabled=False):\n    return x + 1"),
    "a type of an argument": ("import torch.distributed as dist\ndef double(x: dist.ProcessGroup): return x * 2", "return double(x)"),
}  # fmt: skip


@pytest.mark.parametrize(("head", "body"), QUIET.values(), ids=QUIET.keys())
def test_other_code_asks_nothing(net, head, body):
    described = describe(net(head, body)[0])
    assert described.distributed is None
    assert described.identity.asked is None


def test_what_is_asked_when_the_module_is_made_is_in_its_attributes(net):
    asking = "    def __init__(self):\n        super().__init__()\n        self.n = torch.get_num_threads()"
    assert describe(net("import torch", "return x * self.n", asking)[0]).distributed is None
    asking = asking.replace("__init__(self)", "other(self)")
    assert describe(net("import torch", "return self.other()", asking)[0]).distributed is not None


def test_torchs_own_modules_of_many_processes_are_found():
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.reduce = torch.distributed.all_reduce

        def forward(self, x):
            return x

    assert describe(Wrapped()).distributed[0] == "torch.distributed.distributed_c10d.all_reduce"
    assert describe(torch.nn.parallel.DataParallel(torch.nn.Linear(2, 2))).distributed is not None
    assert describe(torch.nn.TransformerEncoderLayer(8, 2)).distributed is None


def test_a_setting_is_compared_and_watched(net):
    made, _ = net("import torch", "return x * 2 if torch.backends.mkldnn.enabled else x")
    described = describe(made)
    assert described.identity.asked == {"torch.backends.mkldnn.enabled": "True"}
    assert described.watch.unchanged()
    before = torch.backends.mkldnn.set_flags(False)
    try:
        assert not described.watch.unchanged()
        other = describe(made).identity
        said = difference(other, described.identity)
        assert said == "torch.backends.mkldnn.enabled is False in the pod, artifact has True"
        assert class_of("cold", f"no artifact is for this Net: main/one: {said}") == "ProcessState"
    finally:
        torch.backends.mkldnn.set_flags(*before)
    assert described.watch.unchanged()
    assert difference(describe(made).identity, described.identity) is None


@pytest.mark.parametrize(
    ("head", "body", "question"),
    [
        ("import torch", "return x * torch.cuda.is_available()", "torch.cuda.is_available"),
        ("from torch.cuda import is_available", "return x * is_available()", "torch.cuda.is_available"),
        ("from torch import cuda", "return x * cuda.device_count()", "torch.cuda.device_count"),
        (
            "import torch",
            "return x * torch.backends.mha.get_fastpath_enabled()",
            "torch.backends.mha.get_fastpath_enabled",
        ),
        ("from torch.backends import mkldnn", "return x * mkldnn.deterministic", "torch.backends.mkldnn.deterministic"),
        ("", "import torch.backends\nreturn x * torch.backends.mkldnn.enabled", "torch.backends.mkldnn.enabled"),
    ],
)
def test_the_machine_is_compared(net, monkeypatch, head, body, question):
    made, _ = net(head, body)
    identity = describe(made).identity
    assert identity.asked == {question: questions.answer(question)}
    monkeypatch.setattr(questions, "answer", lambda name: f"other than of {name}")
    assert f"{question} is other than of {question} in the pod" in difference(describe(made).identity, identity)


def test_a_question_that_fails_has_an_answer_too():
    assert questions.answer("torch.backends.mkldnn.absent") == "AttributeError"
