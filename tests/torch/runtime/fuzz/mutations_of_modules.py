"""What people do to submodules, attributes, code and the process after they have compiled a module."""

import copy
import types

import models
import torch
from case import NothingToDo, mutation
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize


class Lora(nn.Module):
    """An adapter of low rank around a linear layer, as people write it by hand."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(2, base.in_features) * 0.3)
        self.up = nn.Parameter(torch.randn(base.out_features, 2) * 0.3)

    def forward(self, x):
        return self.base(x) + x @ self.down.t() @ self.up.t()


class Louder(nn.Module):
    def forward(self, weight):
        return weight * 1.5


class Other(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


@mutation
def submodule_of_equal_make(case):
    part, name = case.child()
    other = copy.deepcopy(part._modules[name])
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.normal_()
    setattr(part, name, other)


@mutation
def submodule_of_another_make(case):
    part, name = case.child()
    setattr(part, name, nn.Identity())


@mutation
def submodules_exchanged(case):
    part, name = case.child()
    names = list(part._modules)
    if len(names) == 1:
        raise NothingToDo
    other = names[(names.index(name) + 1) % len(names)]
    part._modules[name], part._modules[other] = part._modules[other], part._modules[name]


@mutation
def another_submodule(case):
    case.net.extra = nn.Linear(2, 2)


@mutation
def train(case):
    case.net.train()


@mutation
def evaluate(case):
    if not any(part.training for part in case.net.modules()):
        raise NothingToDo
    case.net.eval()


@mutation
def train_one_part(case):
    case.part.train()


@mutation
def another_class(case):
    case.linear.__class__ = Other


@mutation
def numbers(case):
    found = [(name, value) for name, value in vars(case.net).items() if type(value) in (int, float)]
    if not found:
        raise NothingToDo
    for name, value in found:
        setattr(case.net, name, value + 1)


@mutation
def an_int_for_a_float(case):
    case.net.factor = 2


@mutation
def a_bool_for_an_int(case):
    case.net.sizes[1] = True


@mutation
def eps(case):
    found = [part for part in case.net.modules() if hasattr(part, "eps")]
    if not found:
        raise NothingToDo
    for part in found:
        part.eps = 0.5


@mutation
def text(case):
    case.net.kind = case.of(["tanh", "relu", "sigmoid"])


@mutation
def list_item(case):
    case.net.sizes[1] = 2 + case.number % 3


@mutation
def dict_item(case):
    case.net.options["bias"] = 0.25 + case.number % 2


@mutation
def tensor_for_a_number(case):
    case.net.factor = torch.tensor(1.5)


@mutation
def forward_of_the_object(case):
    own = case.net.forward
    case.net.forward = types.MethodType(lambda self, *args, **kwargs: own(*args, **kwargs), case.net)


@mutation
def forward_of_a_part(case):
    case.linear.forward = types.MethodType(lambda self, x: functional.linear(x, self.weight) * 2, case.linear)


@mutation
def forward_of_the_class(case):
    kind = type(case.net)
    own = kind.forward
    case.patch.setattr(kind, "forward", lambda self, *args, **kwargs: own(self, *args, **kwargs))


@mutation
def helper_replaced(case):
    case.patch.setattr(models, "helper", lambda x, shift=0.25: x - shift)


@mutation
def helper_in_place(case):
    case.patch.setattr(models.helper, "__code__", (lambda x, shift=0.25: x + shift).__code__)


@mutation
def helpers_defaults(case):
    case.patch.setattr(models.helper, "__defaults__", (0.75,))


@mutation
def a_global(case):
    case.patch.setattr(models, "GAIN", 2.5)


@mutation
def a_name_before_pythons_own(case):
    case.patch.setattr(models, "abs", lambda x: x * 2, raising=False)


@mutation
def torch_replaced(case):
    own = functional.linear
    case.patch.setattr(functional, "linear", lambda x, w, b=None: own(x, w, b) + 1)


@mutation
def silu_for_gelu(case):
    case.patch.setattr(functional, "gelu", functional.silu)


@mutation
def layer_replaced(case):
    own = nn.Linear.forward
    case.patch.setattr(nn.Linear, "forward", lambda self, x: own(self, x) * 2)


@mutation
def hook(case):
    case.part.register_forward_hook(lambda part, args, output: None)


@mutation
def hook_that_changes(case):
    case.linear.register_forward_hook(lambda part, args, output: output * 2)


@mutation
def pre_hook(case):
    case.linear.register_forward_pre_hook(lambda part, args: (args[0] * 2,))


@mutation
def hooks_removed(case):
    found = [part for part in case.net.modules() if part._forward_hooks or part._forward_pre_hooks]
    if not found:
        raise NothingToDo
    for part in found:
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()


@mutation
def global_hook(case):
    hooks = nn.modules.module._global_forward_hooks
    case.patch.setitem(hooks, 10_000, lambda part, args, output: None)


@mutation
def parametrized(case):
    parametrize.register_parametrization(case.linear, "weight", Louder())


@mutation
def parametrization_removed(case):
    for part in case.net.modules():
        if parametrize.is_parametrized(part, "weight"):
            parametrize.remove_parametrizations(part, "weight", leave_parametrized=bool(case.number % 2))
            return
    raise NothingToDo


@mutation
def weight_norm(case):
    nn.utils.parametrizations.weight_norm(case.linear)


@mutation
def spectral_norm(case):
    nn.utils.parametrizations.spectral_norm(case.linear)


@mutation
def lora(case):
    found = [(part, n) for part in case.net.modules() for n, child in part._modules.items() if type(child) is nn.Linear]
    part, name = case.of(found)
    setattr(part, name, Lora(part._modules[name]))


@mutation
def lora_removed(case):
    found = [(part, n) for part in case.net.modules() for n, child in part._modules.items() if isinstance(child, Lora)]
    if not found:
        raise NothingToDo
    for part, name in found:
        setattr(part, name, part._modules[name].base)


@mutation
def part_answers_otherwise(case):
    case.linear._compiled_call_impl = lambda x: x[..., :1] * 0


@mutation
def part_answers_as_itself(case):
    found = [part for part in case.net.modules() if part.__dict__.pop("_compiled_call_impl", None) is not None]
    if not found:
        raise NothingToDo


@mutation
def default_dtype(case):
    torch.set_default_dtype(case.of([torch.float64, torch.float32]))


@mutation
def deterministic(case):
    torch.use_deterministic_algorithms(bool(case.number % 2))


@mutation
def matmul_precision(case):
    torch.set_float32_matmul_precision(case.of(["medium", "highest"]))


@mutation
def threads(case):
    torch.set_num_threads(1 + case.number % 2)


@mutation
def everything_else_undone(case):
    case.patch.undo()
