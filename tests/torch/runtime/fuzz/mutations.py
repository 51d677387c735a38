"""What people do to a module after they have compiled it: each by name, as a function of a `Case`.

One that does not apply to a module (no buffer, no square weight) does nothing, or raises; both are fine.
"""

import copy
import types

import models
import torch
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


class Case:
    """A module under test, a number to draw from, and a patch that is undone with the module."""

    def __init__(self, net, patch, number):
        self.net, self.patch, self.number = net, patch, number

    def of(self, items):
        """One of them, by the number."""
        items = list(items)
        return items[self.number % len(items)] if items else None

    @property
    def part(self):
        return self.of(self.net.modules())

    @property
    def linear(self):
        return self.of(part for part in self.net.modules() if isinstance(part, nn.Linear))

    @property
    def weight(self):
        """A module and the name of one of its parameters."""
        return self.of(
            (part, name) for part in self.net.modules() for name, p in part._parameters.items() if p is not None
        )

    @property
    def buffer(self):
        return self.of(
            (part, name) for part in self.net.modules() for name, b in part._buffers.items() if b is not None
        )

    def child(self):
        """A module, and the name of one of its submodules."""
        return self.of((part, name) for part in self.net.modules() for name in part._modules)


MUTATIONS = {}


def mutation(function):
    MUTATIONS[function.__name__] = function
    return function


@mutation
def weight_in_place(case):
    part, name = case.weight
    getattr(part, name).data.normal_()


@mutation
def weights_loaded(case):
    case.net.load_state_dict(
        {name: torch.randn_like(t) if t.is_floating_point() else t for name, t in case.net.state_dict().items()}
    )


@mutation
def weights_assigned(case):
    state = {
        name: torch.randn_like(t) if t.is_floating_point() else t.clone() for name, t in case.net.state_dict().items()
    }
    case.net.load_state_dict(state, assign=True)


@mutation
def new_parameter(case):
    part, name = case.weight
    setattr(part, name, nn.Parameter(torch.randn_like(getattr(part, name))))


@mutation
def parameter_behind_the_back(case):
    part, name = case.weight
    part._parameters[name] = nn.Parameter(torch.randn_like(part._parameters[name]))


@mutation
def new_data(case):
    part, name = case.weight
    getattr(part, name).data = torch.randn_like(getattr(part, name))


@mutation
def set_storage(case):
    part, name = case.weight
    weight = getattr(part, name)
    with torch.no_grad():
        weight.set_(torch.randn_like(weight))


@mutation
def there_and_back(case):
    case.net.double().float()


@mutation
def swapped_on_conversion(case):
    case.patch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    case.net.double().float()


@mutation
def half_one_part(case):
    case.part.bfloat16()


@mutation
def double_all(case):
    case.net.double()


@mutation
def float_all(case):
    case.net.float()


@mutation
def transposed_strides(case):
    part, name = case.weight
    weight = getattr(part, name)
    weight.data = weight.data.t().contiguous().t()


@mutation
def transposed_square(case):
    part, name = case.weight
    weight = getattr(part, name)
    weight.data = weight.data.t()


@mutation
def tied(case):
    part, name = case.weight
    weight = getattr(part, name)
    for other in case.net.modules():
        for key, held in list(other._parameters.items()):
            if held is not None and held is not weight and held.shape == weight.shape:
                setattr(other, key, weight)
                return


@mutation
def untied(case):
    part, name = case.weight
    setattr(part, name, nn.Parameter(getattr(part, name).detach().clone()))


@mutation
def swapped(case):
    part, name = case.weight
    torch.utils.swap_tensors(getattr(part, name), nn.Parameter(torch.randn_like(getattr(part, name))))


@mutation
def no_grad_wanted(case):
    case.net.requires_grad_(False)


@mutation
def grad_wanted(case):
    part, name = case.weight
    getattr(part, name).requires_grad_(True)


@mutation
def buffer_none(case):
    part, name = case.buffer
    setattr(part, name, None)


@mutation
def buffer_replaced(case):
    part, name = case.buffer
    held = getattr(part, name)
    setattr(part, name, torch.rand_like(held) + 0.5 if held.is_floating_point() else held.clone())


@mutation
def a_mask(case):
    case.net.mask = torch.full((8,), 0.5)


@mutation
def parameter_deleted(case):
    part, name = case.weight
    delattr(part, name)


@mutation
def deleted_and_added(case):
    part, name = case.weight
    held = getattr(part, name)
    delattr(part, name)
    part.register_parameter(name, held)


@mutation
def parameter_to_buffer(case):
    part, name = case.weight
    held = getattr(part, name)
    delattr(part, name)
    part.register_buffer(name, held.detach())


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
    case.net.eval()


@mutation
def train_one_part(case):
    case.part.train()


@mutation
def another_class(case):
    case.linear.__class__ = Other


@mutation
def numbers(case):
    for name, value in list(vars(case.net).items()):
        if type(value) in (int, float):
            setattr(case.net, name, value + 1)


@mutation
def an_int_for_a_float(case):
    case.net.factor = 2


@mutation
def a_bool_for_an_int(case):
    case.net.sizes[1] = True


@mutation
def eps(case):
    for part in case.net.modules():
        if hasattr(part, "eps"):
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
    for part in case.net.modules():
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
    for part in list(case.net.modules()):
        for name, child in list(part._modules.items()):
            if isinstance(child, Lora):
                setattr(part, name, child.base)


@mutation
def part_answers_otherwise(case):
    case.linear._compiled_call_impl = lambda x: x[..., :1] * 0


@mutation
def part_answers_as_itself(case):
    for part in case.net.modules():
        part.__dict__.pop("_compiled_call_impl", None)


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
