"""`for block in net.blocks: block.compile()`, as torch's documentation has it: each block is a module that is compiled by itself.

So an artifact with the path of one block answers for all of its like, each with its own weights. One of the whole in regions does
not: it holds what the whole is, and nothing by which a block alone could be told from another.
"""

from dataclasses import replace

import pytest
import torch

from preheat_compiler.package import ExampleCall, describe_target
from preheat_runtime.package import TARGET_FILE, RegionSpec, Target
from seen import close

pytestmark = pytest.mark.torch


@pytest.fixture
def stack(nets):
    return nets.stack(seed=3)


@pytest.fixture
def recipe(compiled, monkeypatch):
    """Compiles each block in place."""
    monkeypatch.setattr(torch, "compile", lambda model, **arguments: compiled(model, **arguments))

    def compile_blocks(stack):
        for block in stack.blocks:
            block.compile()

    return compile_blocks


@pytest.fixture
def of_a_block(pod, trap_package):
    """An artifact as of a module with `path: blocks.0`."""
    pod.write((trap_package[0], pod.entry(trap_package[0], module="block")))


@pytest.fixture
def in_regions(pod, trap_package, stack, tmp_path):
    """An artifact as of the whole with `regions: ["blocks.*"]`; the code is the block's."""
    folder, made = tmp_path / "regions", Target.read(trap_package[0] / TARGET_FILE)
    whole = describe_target(
        stack, ExampleCall(args=(torch.randn(4, 16),)), dynamic_shapes=None, out=folder, cpu_isa="X86_64_V3"
    )
    paths = tuple(f"blocks.{number}" for number in range(len(stack.blocks)))
    region = RegionSpec(paths=paths, call=made.call, package=replace(made.package, library="region-0.so"))
    replace(whole, regions=(region,)).write(folder / TARGET_FILE)
    (folder / "region-0.so").symlink_to(trap_package[0] / made.package.library)
    pod.write((folder, pod.entry(folder, bucket="four")))


def said(compiled):
    return [(line["outcome"], line["class"], line["reason"]) for line in compiled.lines if line["event"] == "preheat"]


@torch.no_grad()
def test_an_artifact_of_one_block_answers_for_all_of_them_with_the_weights_of_each(compiled, recipe, of_a_block, stack):
    x = torch.randn(4, 16)
    eager, of_the_first = stack(x), stack.blocks[0](x)["y"] * len(stack.blocks)
    recipe(stack)
    assert compiled.served(lambda: close(stack(x), eager))
    assert (stack(x)["y"] - of_the_first).abs().max() > 1e-3
    assert said(compiled) == [("hot", "Trap", "package")]


@torch.no_grad()
def test_a_block_that_is_not_like_the_first_is_left_to_torch_and_the_others_are_not(
    compiled, recipe, of_a_block, stack
):
    stack.blocks[1].factor = 2.5
    x = torch.randn(4, 16)
    eager = stack(x)
    recipe(stack)
    close(stack(x), eager)
    assert compiled.fallbacks == 1
    hot, cold = said(compiled)
    assert hot == ("hot", "Trap", "package")
    assert cold[0] == "cold"
    assert "an attribute of the module (Trap) differs" in cold[2]


@torch.no_grad()
def test_an_artifact_of_the_whole_in_regions_is_not_for_its_blocks_alone(compiled, recipe, in_regions, stack):
    x = torch.randn(4, 16)
    eager = stack(x)
    recipe(stack)
    close(stack(x), eager)
    assert compiled.fallbacks == len(stack.blocks)
    outcome, kind, reason = said(compiled)[0]
    assert (outcome, kind) == ("cold", "Trap")
    assert reason.startswith("no artifact is for this Trap: ")


@torch.no_grad()
def test_the_whole_in_regions_is_hot_where_it_is_the_whole_that_is_compiled(compiled, in_regions, stack):
    x = torch.randn(4, 16)
    served = compiled(stack)
    assert compiled.served(lambda: close(served(x), stack(x)))
    assert said(compiled) == [("hot", "Stack", "package")]


@torch.no_grad()
def test_blocks_that_were_compiled_by_themselves_are_not_called_hot_with_the_whole(compiled, recipe, in_regions, stack):
    """They answer first, whoever asks: what serves them is torch."""
    x = torch.randn(4, 16)
    eager = stack(x)
    recipe(stack)
    served = compiled(stack)
    close(served(x), eager)
    outcome, kind, reason = said(compiled)[-1]
    assert (outcome, kind) == ("cold", "Stack")
    assert "submodule 'blocks.0' is compiled on its own already" in reason


@torch.no_grad()
def test_a_copy_of_a_block_by_its_dict_has_its_own_code_and_weights(compiled, in_regions, stack):
    """As `__getstate__`, `__deepcopy__` and nn.DataParallel have it."""
    x = torch.randn(4, 16)
    served = compiled(stack)
    assert compiled.served(lambda: close(served(x), stack(x)))
    block, twin = stack.blocks[0], object.__new__(type(stack.blocks[0]))
    twin.__dict__.update(block.__dict__, factor=3.0)
    assert vars(block).keys() == vars(type(block)()).keys()
    close(twin(x), type(block).forward(twin, x))
    assert (twin(x)["y"] - block(x)["y"]).abs().max() > 1e-3


@torch.no_grad()
def test_a_module_that_merely_has_such_submodules_is_left_as_it_is(compiled, in_regions, stack):
    stack.head = torch.nn.Identity()
    for kind in {type(block) for block in stack.blocks}:
        if "_compiled_call_impl" in vars(kind):  # of a test before this one
            del kind._compiled_call_impl
    before = [set(vars(part)) | set(vars(type(part))) for part in stack.modules()]
    x = torch.randn(4, 16)
    close(compiled(stack)(x), stack(x))
    assert said(compiled)[0][0] == "cold"
    assert [set(vars(part)) | set(vars(type(part))) for part in stack.modules()] == before
