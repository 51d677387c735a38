"""Devices' names read without std::regex: when, how, and that they are read as before."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from preheat_compiler.package_device import HEADER, READER, applies, without_regex

if TYPE_CHECKING:
    from pathlib import Path

# What torch's header says, as far as it is looked at.
TORCH = """\
#include <regex>
inline void parse_device_str(const std::string& device_str) {
  std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");
  std::smatch sm;
  bool matched = std::regex_match(device_str, sm, re);
  AOTI_RUNTIME_CHECK(matched, "Invalid device: " + device_str);
}
"""


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (TORCH, True),
        (TORCH.replace("\n", "\r\n"), True),
        ("", False),
        (TORCH.replace("|mps", "|mps|hpu"), False),
        (TORCH.replace("regex_match", "regex_search"), False),
        (TORCH + "std::cmatch other;\n", False),
        (TORCH + 'static std::regex other("a");\n', False),
        (TORCH + TORCH, False),
    ],
)
def test_it_is_used_where_the_header_says_exactly_that(header: str, expected: bool) -> None:
    assert applies(header) is expected


class Builder:
    """Inductor's, as far as it is used."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.built = ""

    def get_target_file_path(self) -> str:
        return str(self.target)

    def build(self) -> None:
        self.built = self.target.with_suffix(".cpp").read_text()


@pytest.fixture(name="includes")
def torchs_headers(tmp_path: Path) -> Path:
    header = tmp_path / "include" / HEADER
    header.parent.mkdir(parents=True)
    header.write_text(TORCH)
    return tmp_path / "include"


@pytest.fixture(name="builder")
def fresh_builder() -> type[Builder]:
    return type("Fresh", (Builder,), {})


def build(builder: type[Builder], target: Path, includes: Path) -> str:
    with without_regex(builder, includes):
        made = builder(target)
        made.build()
    return made.built


def test_the_wrapper_begins_with_it_once_and_the_kernels_are_as_they_were(
    tmp_path: Path, includes: Path, builder: type[Builder]
) -> None:
    wrapper, kernel = tmp_path / "a.wrapper.o", tmp_path / "a.kernel.o"
    for target in (wrapper, kernel):
        target.with_suffix(".cpp").write_text("int a;\n")
    before = builder.build
    assert build(builder, wrapper, includes) == READER + "int a;\n"
    assert build(builder, wrapper, includes) == READER + "int a;\n"
    assert build(builder, kernel, includes) == "int a;\n"
    assert builder.build is before


def test_another_header_leaves_the_wrapper_as_it_is(tmp_path: Path, includes: Path, builder: type[Builder]) -> None:
    wrapper = tmp_path / "a.wrapper.o"
    wrapper.with_suffix(".cpp").write_text("int a;\n")
    (includes / HEADER).write_text(TORCH.replace("mps", "hpu"))
    assert build(builder, wrapper, includes) == "int a;\n"
    (includes / HEADER).unlink()
    assert build(builder, wrapper, includes) == "int a;\n"


COMPARED = """
#include <cstdio>
#include <regex>
int main(int count, char** devices) {
  for (int i = 1; i < count; ++i) {
    const std::string device(devices[i]);
    torch::aot_inductor::std::smatch ours;
    const bool matched = torch::aot_inductor::std::regex_match(device, ours, torch::aot_inductor::std::regex(PATTERN));
    std::smatch theirs;
    const std::regex pattern(PATTERN);
    bool same = std::regex_match(device, theirs, pattern) == matched;
    for (int group = 0; matched && group < 4; ++group)
      same = same && theirs[group].matched == ours[group].matched && theirs[group].str() == ours[group].str();
    std::printf("%d%d", matched, same);
  }
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_devices_are_read_as_torchs_pattern_reads_them(tmp_path: Path) -> None:
    found = re.search(r'std::regex re\((".*")\)', TORCH)
    assert found is not None
    source = tmp_path / "compared.cpp"
    source.write_text(READER + COMPARED.replace("PATTERN", found[1]))
    program = tmp_path / "compared"
    subprocess.run(["g++", "-std=c++20", "-O0", source, "-o", program], check=True)
    good = ["cpu", "cuda", "xpu", "mps", "cpu:0", "cuda:0", "cuda:12", "xpu:007"]
    bad = [
        "",
        ":",
        "cpu:",
        "cuda:x",
        "cuda:1x",
        "cuda:-1",
        "cuda:1:2",
        "cpu ",
        " cpu",
        "CPU",
        "hpu",
        "cuda1",
        "cpucuda",
    ]
    said = subprocess.run([program, *good, *bad], check=True, capture_output=True, text=True).stdout
    assert said == "11" * len(good) + "01" * len(bad)
