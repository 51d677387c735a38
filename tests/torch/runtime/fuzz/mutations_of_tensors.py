"""What people do to the parameters and buffers of a module after they have compiled it."""

import torch
from case import NothingToDo, mutation
from torch import nn


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
    tensors = [*case.net.parameters(), *case.net.buffers()]
    if all(tensor.dtype is torch.float32 for tensor in tensors if tensor.is_floating_point()):
        raise NothingToDo
    case.net.float()


@mutation
def transposed_strides(case):
    part, name = case.weight
    weight = getattr(part, name)
    if weight.dim() != 2:
        raise NothingToDo
    weight.data = weight.data.t().contiguous().t()


@mutation
def transposed_square(case):
    part, name = case.weight
    weight = getattr(part, name)
    if weight.dim() != 2:
        raise NothingToDo
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
    raise NothingToDo


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
    if not any(parameter.requires_grad for parameter in case.net.parameters()):
        raise NothingToDo
    case.net.requires_grad_(False)


@mutation
def grad_wanted(case):
    found = [parameter for parameter in case.net.parameters() if not parameter.requires_grad]
    if not found:
        raise NothingToDo
    case.of(found).requires_grad_(True)


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
