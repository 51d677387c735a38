"""What is loaded at `import torch`, what without torch, and what of a Python that ignores its environment can be seen."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

OURS = "; print(*sorted(name for name in sys.modules if name.startswith('preheat')))"


def started(pod, *words, **environ):
    """Our modules in a fresh process that calls no torch.compile, and its log."""
    pod.write()
    done = subprocess.run(
        [sys.executable, *words],
        env=pod.environment(**environ),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.split(), done.stderr


def test_without_torch_nothing_of_ours_is_there(pod):
    assert started(pod, "-c", f"import sys{OURS}") == ([], "")
    assert not list(pod.work.iterdir())


def test_at_import_torch_there_is_the_hook_and_no_more(pod):
    names, log = started(pod, "-c", f"import sys, torch{OURS}")
    assert names == ["preheat_runtime", "preheat_runtime.hook"]
    assert '"event": "preheat-loaded"' in log


@pytest.mark.parametrize(
    ("options", "environ"),
    [(["-I"], {}), (["-E"], {}), ([], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})],
    ids=["-I", "-E", "TORCH_DEVICE_BACKEND_AUTOLOAD=0"],
)
def test_where_no_entry_point_is_loaded_torch_is_plain_and_the_line_lacks_that_would_say_otherwise(
    pod, options, environ
):
    """By the missing line `preheat why` tells it: see `unit/explain`."""
    script = f"import sys, torch; assert not hasattr(torch.compile, '_preheat'){OURS}"
    names, log = started(pod, *options, "-c", script, **environ)
    assert names == []
    assert "preheat" not in log
