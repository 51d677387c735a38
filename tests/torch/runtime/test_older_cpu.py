"""A package is hot and right on the oldest CPU of its class, and left alone on one before it."""

import platform
from concurrent.futures import ThreadPoolExecutor

import pytest

import emulation
from seen import RIGHT_ANSWER

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU classes are of x86-64"),
]

RUN = f"{RIGHT_ANSWER}print(torch.backends.cpu.get_cpu_capability())"


@pytest.mark.soak
def test_hot_on_the_oldest_cpu_of_the_class_and_refused_before_it(pod, trap_package):
    emulation.install()
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    pod.python("")  # lays the pod out, once for both

    def served(cpu):
        return pod.python(RUN, cpu=cpu, OMP_NUM_THREADS="1", timeout=600)

    with ThreadPoolExecutor(2) as pool:
        (hot, (first,)), (refused, (second,)) = pool.map(served, (emulation.V3_ONLY, emulation.BEFORE_V3))
    # torch was not fooled by either CPU, so the runs were what they are taken for.
    assert (hot.strip(), refused.strip()) == ("AVX2", "DEFAULT")
    assert (first["outcome"], first["reason"]) == ("hot", "package")
    assert second["outcome"] == "eager"  # there is no compiler in that pod
    assert "CPU lacks abm, avx2, bmi1, bmi2, f16c, fma, which code for X86_64_V3 needs" in second["reason"]
