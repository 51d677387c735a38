"""Reads an exported graph in functional form for what a package cannot do, and for how outputs are put together.

Why it exists: AOTInductor compiles graphs that write to buffers, that hold tensors nobody can bind, and that call
operators its plain code cannot reach, without a word. Each would be silently wrong or crash in the pod.
"""

from __future__ import annotations

import copy
import operator
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from preheat_runtime.package import ConstSpec, const_spec
from preheat_runtime.trial import draws_random_numbers

from .package_errors import CustomOperator, GraphMutates, NotPackageable, UnbindableConstant

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRITES = {
    OutputKind.BUFFER_MUTATION: "buffer",
    OutputKind.USER_INPUT_MUTATION: "input",
    OutputKind.PARAMETER_MUTATION: "parameter",
}
_KINDS = {InputKind.USER_INPUT: "input", InputKind.BUFFER: "buffer", InputKind.PARAMETER: "parameter"}
_TORCH = str(Path(torch.__file__).parent)
_OWN_NAMESPACES = frozenset({"aten", "prims", "_operator", "math"})


@dataclass(frozen=True, kw_only=True)
class OutputPlan:
    """torch's serialised output tree, and for each leaf the library's output, or a constant."""

    tree: str
    leaves: tuple[int | ConstSpec, ...]


def inspect_graph(program: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise NotPackageable for a graph that writes, holds foreign tensors or calls foreign operators."""
    for output in program.graph_signature.output_specs:
        if output.kind in _WRITES:
            raise GraphMutates(f"the call writes to the {_WRITES[output.kind]} {output.target}", name=output.target)
        if output.kind is not OutputKind.USER_OUTPUT:
            raise NotPackageable(f"the graph has an output of kind {output.kind.name}")
    for entry in program.graph_signature.input_specs:
        if entry.kind in (InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER):
            continue
        if entry.kind is InputKind.CONSTANT_TENSOR and entry.target not in tensors:
            where = _first_use(program, entry.arg.name)
            # What torch lifts out of the code has no name that its author would know.
            what = "a tensor" if entry.target.startswith("lifted_tensor_") and where else f"the tensor {entry.target}"
            raise UnbindableConstant(
                f"the code uses {what}, which is no parameter or buffer, so its content would be "
                "baked in; make it one with register_buffer(name, tensor, persistent=False)",
                name=entry.target,
                where=where,
            )
        if entry.kind is not InputKind.CONSTANT_TENSOR:
            raise CustomOperator(f"the graph takes {entry.target} of kind {entry.kind.name}", name=entry.target)
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            if node.target.namespace not in _OWN_NAMESPACES:
                raise CustomOperator(
                    f"the code calls {node.target}, which plain code cannot reach", name=str(node.target)
                )
        elif node.op == "get_attr":
            raise NotPackageable(f"the graph holds a subgraph {node.target}", name=str(node.target))


def written(program: Any, tensors: Mapping[str, torch.Tensor]) -> GraphMutates | None:
    """The first write to what is the module's or the caller's in a graph that has no functional form; None without one.

    A buffer that the module also keeps in a list or another object is there under torch's own name, and found by its memory.
    """
    entries = {entry.arg.name: entry for entry in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        for place in _written_by(node):
            entry = entries.get(_origin(place).name)
            if entry is None:
                continue
            known = _name_of(program.constants.get(entry.target), tensors)
            kind, name = _KINDS.get(entry.kind, "tensor"), entry.target or entry.arg.name
            if known is not None:
                kind, name = "buffer", known
            return GraphMutates(f"the call writes to the {kind} {name}", name=name, where=_users_line(node))
    return None


def _written_by(node: Any) -> list[Any]:
    """The arguments that a node's operator writes to."""
    return [value for value, alias in _arguments(node) if alias.is_write]


def _origin(node: Any) -> Any:
    """What `node` is a view of, to the end."""
    while node.op == "call_function":
        if node.target is operator.getitem:
            node = node.args[0]
        elif aliased := [value for value, _ in _arguments(node)]:
            node = aliased[0]
        else:
            break
    return node


def _arguments(node: Any) -> list[tuple[Any, Any]]:
    """The nodes among an operator's arguments whose memory it writes to or answers with, with torch's word on which."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return []
    named = [*zip(node.target._schema.arguments, node.args, strict=False)]
    named += [(each, node.kwargs[each.name]) for each in node.target._schema.arguments if each.name in node.kwargs]
    return [
        (value, argument.alias_info)
        for argument, given in named
        if argument.alias_info is not None
        for value in (given if isinstance(given, (list, tuple)) else [given])
        if isinstance(value, torch.fx.Node)
    ]


def _name_of(tensor: Any, tensors: Mapping[str, torch.Tensor]) -> str | None:
    if not isinstance(tensor, torch.Tensor):
        return None
    memory = tensor.untyped_storage().data_ptr()
    if not memory:
        return None
    return next((path for path, each in tensors.items() if each.untyped_storage().data_ptr() == memory), None)


def draws(program: Any) -> tuple[str, ...]:
    """The operators that draw random numbers, each with the user's `file:line` where torch knows it."""
    called = [
        node
        for node in program.graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    ]
    drawing = [node for node in called if draws_random_numbers(node.target, node.args, node.kwargs)]
    places = [(node.target, _users_line(node)) for node in drawing]
    return tuple(dict.fromkeys(f"{target} ({where})" if where else str(target) for target, where in places))


def _first_use(program: Any, placeholder: str) -> str | None:
    """`file:line` of what first uses an input of the graph."""
    for node in program.graph.nodes:
        if node.name == placeholder:
            return next((where for user in node.users if (where := _users_line(user))), None)
    return None


def _users_line(node: Any) -> str | None:
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith(_TORCH)]
    return ":".join((own or frames)[-1]) if frames else None


def without_texts(program: Any) -> None:
    """Put None in place of the texts among the graph's outputs: Inductor refuses them, and the plan has them already."""
    (output,) = program.graph.find_nodes(op="output")
    output.args = (tuple(None if isinstance(leaf, str) else leaf for leaf in output.args[0]),)
    for spec in program.graph_signature.output_specs:
        if isinstance(spec.arg, ConstantArgument) and isinstance(spec.arg.value, str):
            spec.arg = ConstantArgument(name=spec.arg.name, value=None)


def check_bindable(program: Any, constants: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> None:
    """Every constant of the library must be the module's, and every one the graph uses must be the library's.

    The first could not be bound; the second was baked in. `constants` is library name -> path.
    """
    for path in constants.values():
        if path not in tensors:
            raise UnbindableConstant(f"the library wants {path}, which is no parameter or buffer", name=path)
    bound = {id(tensors[path]) for path in constants.values()}
    for path in sorted(used_tensors(program)):
        # Of an empty tensor there is nothing that could be baked in, and the compiler leaves it out.
        if path in tensors and tensors[path].numel() and id(tensors[path]) not in bound:
            raise UnbindableConstant(f"{path} is used by the code, but was baked into it", name=path)


def used_tensors(program: Any) -> set[str]:
    """Paths of the parameters and buffers that the graph's outputs depend on."""
    module = copy.deepcopy(program.graph_module)
    module.graph.eliminate_dead_code()
    alive = {node.name for node in module.graph.nodes if node.op == "placeholder" and node.users}
    return {
        entry.target
        for entry in program.graph_signature.input_specs
        if entry.target is not None and entry.arg.name in alive
    }


def output_plan(program: Any) -> OutputPlan:
    """How flat outputs become the module's output. Raises NotPackageable for trees or leaves that cannot be written."""
    leaves: list[int | ConstSpec] = []
    for position, output in enumerate(program.graph_signature.output_specs):
        if isinstance(output.arg, TensorArgument):
            leaves.append(position)  # the library has a place for constants too, and leaves it empty
            continue
        const = const_spec("", output.arg.value) if isinstance(output.arg, ConstantArgument) else None
        if const is None:
            raise NotPackageable(f"the module returns {output.arg}, which is neither a tensor nor a plain constant")
        leaves.append(const)
    try:
        tree = pytree.treespec_dumps(program.call_spec.out_spec)
        if pytree.treespec_loads(tree) != program.call_spec.out_spec:
            raise NotPackageable("the module's output is of a type that cannot be written down")
    except (NotImplementedError, ValueError, TypeError, AttributeError) as error:
        raise NotPackageable(f"the module's output is of a type that cannot be written down: {error}") from error
    return OutputPlan(tree=tree, leaves=tuple(leaves))
