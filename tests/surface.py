"""What is done with the object that torch.compile returns: a row for each, to be compared with what the real one does.

A row gets a torch.compile and a module, and returns what it saw. `tests/torch/runtime/test_surface.py` runs them; they are
here since nothing can be imported from a folder that is called torch.
"""

import copy
import gc
import inspect
import io
import types
import weakref

import torch
from torch import nn

X = torch.linspace(-1, 1, 64).view(4, 16)


class Near:
    """An answer: equal to one of the same numbers, give or take what compiling changes."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __eq__(self, other):
        return torch.allclose(self.tensor.float(), other.tensor.float(), rtol=1e-3, atol=1e-4)

    def __repr__(self):
        return f"Near({self.tensor.flatten()[:3].tolist()})"

    __hash__ = None


def answer(call):
    with torch.no_grad():
        return Near(call(X)["y"])


def hooked(net, register):
    seen = []
    getattr(net, register)(lambda *args: seen.append(type(args[0]).__name__ if register[-1] == "k" else 0) or None)
    return seen


def calls_hook(compile_, net, register, on_result):
    result = compile_(net)
    seen = hooked(result if on_result else net, register)
    return answer(result), len(seen)


def pickled(compile_, net):
    result = compile_(net)
    buffer = io.BytesIO()
    torch.save(result.state_dict(), buffer)
    buffer.seek(0)
    return sorted(torch.load(buffer))


def decorated_method(compile_, net):
    class Service:
        def __init__(self):
            self.model = compile_(net)

        @compile_
        def predict(self, x):
            return {"y": self.model(x)["y"] * 2}

    return answer(Service().predict)


def decorated_function(compile_, net):
    model = compile_(net)

    @compile_(fullgraph=True)
    def double(x):
        return {"y": model(x)["y"] * 2}

    return answer(double)


def in_sequential(compile_, net):
    holder = nn.Sequential(compile_(net))
    with torch.no_grad():
        found = holder(X)["y"]
    return Near(found), sorted(holder.state_dict())


def compiled_holder(compile_, net):
    holder = nn.Sequential(compile_(net))
    return answer(compile_(holder, fullgraph=True))


def exported(_compile, net):
    with torch.no_grad():
        program = torch.export.export(_compile(net), (X,))
    return answer(program.module())


def weak(compile_, net):
    result = compile_(net)
    reference, inner = weakref.ref(result), weakref.ref(net)
    alive = reference() is result
    del result, net
    gc.collect()
    return alive, reference() is None, inner() is not None  # the row's caller still holds nothing of it


def patched_forward(compile_, net):
    result = compile_(net)
    result.forward = lambda x: {"y": x}
    return answer(result)


def class_attribute(compile_, net):
    result = compile_(net)
    result.factor = 7.5
    held = net.factor
    del result.factor
    return held, hasattr(net, "factor"), hasattr(result, "factor")


def replaced_submodule(compile_, net):
    result = compile_(net)
    result.narrow = nn.Identity()
    return type(net.narrow).__name__, sorted(result._modules)


def compiled_twice(compile_, net):
    # The real one gives a function then, without the module; ours is the same object again.
    return answer(compile_(compile_(net)))


def after_module_compile(compile_, net):
    net.compile()
    first = answer(net)
    return first, sorted(net.state_dict()), type(net).__name__, answer(copy.deepcopy(net))


def compiled_submodule(compile_, net):
    holder = nn.Sequential(net)
    holder[0].compile()
    return answer(compile_(holder))


def copied(copy_, change):
    def row(compile_, net):
        result = compile_(net)
        answer(result)
        other = copy_(result)
        with torch.no_grad():
            change(net)
        return answer(result), answer(other), isinstance(other, nn.Module), other._orig_mod is net

    return row


def loaded(compile_, net):
    result = compile_(net)
    state = {name: torch.full_like(tensor, 0.5) for name, tensor in result.state_dict().items()}
    found = result.load_state_dict(state)
    return str(found), answer(result)


def keys_do_not_fit(compile_, net):
    compile_(net).load_state_dict(net.state_dict())


def lost_attribute(compile_, net):
    return compile_(net).there_is_none


def applied(compile_, net):
    seen = []
    result = compile_(net)
    same = result.apply(lambda part: seen.append(type(part).__qualname__))
    return same is result, len(seen), seen[-2]


def switched_off(compile_, net):
    result = torch.compiler.disable(compile_(net))
    return answer(result)


def off_inside(compile_, net):
    result = compile_(net)
    seen = []

    @torch.compiler.disable
    def call(x):
        seen.append(1)
        return result(x)

    return answer(call), seen


def stance(compile_, net):
    result = compile_(net)
    with torch.compiler.set_stance("force_eager"):
        return answer(result)


def compiled_forward(compile_, net):
    forward = compile_(net.forward)
    seen = hooked(net, "register_forward_hook")
    return answer(forward), len(seen), forward.__name__, isinstance(forward, nn.Module)


def compiled_call(compile_, net):
    call = compile_(net.__call__)
    seen = hooked(net, "register_forward_hook")
    return answer(call), len(seen)


def other_method(compile_, net):
    net.other = types.MethodType(lambda self, x: {"y": x * self.factor}, net)
    return answer(compile_(net.other))


def grads(compile_, net):
    compile_(net)(X)["y"].sum().backward()
    return [name for name, parameter in net.named_parameters() if parameter.grad is not None]


def functional(compile_, net):
    result = compile_(net)
    answer(result)
    state = {name: torch.full_like(tensor, 0.25) for name, tensor in result.state_dict().items()}
    return answer(lambda x: torch.func.functional_call(result, state, (x,))), answer(result)


def fullgraph_of_a_method(compile_, net):
    net.compile(fullgraph=True)

    def outer(x):
        return {"y": net(x)["y"] + 1}

    return answer(compile_(outer, fullgraph=True))


ROWS = {
    "answer": lambda c, n: answer(c(n)),
    "answer by keyword": lambda c, n: answer(lambda x: c(n)(x=x)),
    "isinstance of OptimizedModule": lambda c, n: isinstance(c(n), torch._dynamo.eval_frame.OptimizedModule),
    "isinstance of Module": lambda c, n: isinstance(c(n), nn.Module),
    "isinstance of its own class": lambda c, n: isinstance(c(n), type(n)),
    "__class__": lambda c, n: c(n).__class__.__name__,
    "repr": lambda c, n: repr(c(n)),
    "callable": lambda c, n: callable(c(n)),
    "len": lambda c, n: len(c(n)),
    "len of a Sequential": lambda c, n: len(c(nn.Sequential(n, nn.ReLU()))),
    "bool": lambda c, n: bool(c(n)),
    "item of a Sequential": lambda c, n: c(nn.Sequential(n))[0],
    "iteration over a Sequential": lambda c, n: list(c(nn.Sequential(n))),
    "_orig_mod": lambda c, n: c(n)._orig_mod is n,
    "attributes": lambda c, n: (c(n).factor, c(n).narrow is n.narrow, c(n).config is n.config),
    "dir": lambda c, n: {"factor", "narrow", "forward", "_orig_mod"} & set(dir(c(n))),
    "attribute set and deleted": class_attribute,
    "no such attribute": lost_attribute,
    "names of parameters": lambda c, n: [name for name, _ in c(n).named_parameters()],
    "names of buffers": lambda c, n: [name for name, _ in c(n).named_buffers()],
    "names of modules": lambda c, n: [name for name, _ in c(n).named_modules()],
    "children": lambda c, n: [name for name, _ in c(n).named_children()],
    "modules": lambda c, n: len(list(c(n).modules())),
    "state_dict": lambda c, n: sorted(c(n).state_dict()),
    "state_dict, saved": pickled,
    "load_state_dict": loaded,
    "load_state_dict with other names": keys_do_not_fit,
    "parameters are the module's": lambda c, n: all(a is b for a, b in zip(c(n).parameters(), n.parameters(), strict=True)),
    "train": lambda c, n: (c(n).train() is not None, n.training, n.norm.training, c(n).training),
    "eval": lambda c, n: (c(n.train()).eval().training, n.training, n.norm.training),
    "training set": lambda c, n: (setattr(c(n), "training", True), n.training, n.norm.training),
    "to": lambda c, n: (c(n).to(torch.float64) is not n, n.scale.dtype),
    "half": lambda c, n: (c(n).half() is not n, n.scale.dtype),
    "requires_grad_": lambda c, n: (c(n).requires_grad_(False) is not n, n.scale.requires_grad),
    "zero_grad": lambda c, n: c(n).zero_grad(),
    "apply": applied,
    "get_submodule": lambda c, n: c(n).get_submodule("_orig_mod.narrow") is n.narrow,
    "get_parameter": lambda c, n: c(n).get_parameter("_orig_mod.scale") is n.scale,
    "register_buffer": lambda c, n: (c(n).register_buffer("more", torch.ones(1)), sorted(dict(n.named_buffers()))),
    "signature of forward": lambda c, n: "x" in inspect.signature(n.forward).parameters,
    "hook on the result": lambda c, n: calls_hook(c, n, "register_forward_hook", True),
    "pre-hook on the result": lambda c, n: calls_hook(c, n, "register_forward_pre_hook", True),
    "hook on the module": lambda c, n: calls_hook(c, n, "register_forward_hook", False),
    "pre-hook on the module": lambda c, n: calls_hook(c, n, "register_forward_pre_hook", False),
    "hook on a submodule": lambda c, n: (answer(c(n)), len(hooked(n.narrow, "register_forward_hook"))),
    "backward": grads,
    "copy": copied(copy.copy, lambda net: net.scale.fill_(0.7)),
    "deepcopy": copied(copy.deepcopy, lambda net: net.scale.fill_(0.7)),
    "compiled twice": compiled_twice,
    "module.compile()": after_module_compile,
    "module.compile() with fullgraph, in a compiled function": fullgraph_of_a_method,
    "a module with a compiled submodule": compiled_submodule,
    "compile() of the result": lambda c, n: (lambda r: (r.compile(), answer(r)))(c(n)),
    "forward compiled": compiled_forward,
    "__call__ compiled": compiled_call,
    "another method compiled": other_method,
    "decorator with arguments": lambda c, n: answer(c(dynamic=False)(n)),
    "a decorated method": decorated_method,
    "a decorated function, fullgraph": decorated_function,
    "in a Sequential": in_sequential,
    "in a compiled Sequential": compiled_holder,
    "in a DataParallel": lambda c, n: answer(nn.DataParallel(c(n))),
    "exported": exported,
    "torch.compiler.disable": switched_off,
    "within torch.compiler.disable": off_inside,
    "torch._dynamo.reset": lambda c, n: (lambda r: (answer(r), torch._dynamo.reset(), answer(r)))(c(n)),
    "set_stance": stance,
    "functional_call": functional,
    "forward of the result replaced": patched_forward,
    "a submodule replaced through the result": replaced_submodule,
    "a mode and options": lambda c, n: c(n, mode="default", options={"trace.enabled": False}),
    "an argument there is none of": lambda c, n: c(n, quickly=True),
    "None": lambda c, n: c(None)(n)._orig_mod is n,
    "weakref": weak,
}  # fmt: skip
