"""While a library runs, Python runs in other threads: torch's own bindings would hold the interpreter's lock all the while."""

import ctypes
import subprocess
import threading
import time

import pytest

from preheat_runtime import native

pytestmark = pytest.mark.torch

#: A library whose one run ends when somebody says so. It gives up where nobody can, for as long as it runs, and then it fails.
UNTIL_TOLD = """
#include <cstddef>
#include <unistd.h>
extern "C" {
volatile int inside = 0, told = 0;
int AOTInductorModelContainerRun(void*, void**, size_t, void**, size_t, void*, void*) {
    inside = 1;
    for (int i = 0; i < 60000 && !told; i++) usleep(1000);
    return told ? 0 : 1;
}
int AOTInductorModelContainerCreateWithDevice(void** container, size_t, const char*, const char*) {
    *container = (void*)&inside;
    return 0;
}
int AOTInductorModelContainerDelete(void*) { return 0; }
int AOTInductorModelContainerGetNumConstants(void*, size_t* n) { return *n = 0; }
int AOTInductorModelContainerGetNumInputs(void*, size_t* n) { return *n = 0; }
int AOTInductorModelContainerGetNumOutputs(void*, size_t* n) { return *n = 0; }
int AOTInductorModelContainerGetConstantName(void*, size_t, const char**) { return 1; }
int AOTInductorModelContainerGetConstantOriginalFQN(void*, size_t, const char**) { return 1; }
int AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(void*, void*, size_t, bool, bool) { return 0; }
int AOTInductorGetLastError(const char** words) { *words = "nobody told it to end"; return 0; }
}
"""


@pytest.fixture
def until_told(tmp_path):
    (tmp_path / "model.cpp").write_text(UNTIL_TOLD)
    path = tmp_path / "model.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(path), str(tmp_path / "model.cpp")], check=True)
    return path


@pytest.mark.parametrize("short", [True, False], ids=["alone", "counted among those at once"])
def test_python_goes_on_in_other_threads_while_a_library_runs(until_told, monkeypatch, short):
    if not short:
        monkeypatch.setattr(native, "SHORT", -1.0)
    library = native.Library(native.SharedObject(until_told))
    signals = ctypes.CDLL(str(until_told))
    inside, told = (ctypes.c_int.in_dll(signals, name) for name in ("inside", "told"))
    came = []

    def call():
        try:
            came.append(library.run([]))
        except native.NativeError as error:
            came.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    while not inside.value:
        time.sleep(0.001)
    counted = sum(1 for _ in range(1000) if not came)
    told.value = 1
    thread.join()
    assert (came, counted) == ([[]], 1000)
