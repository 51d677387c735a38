r"""Spares each library its own engine for regular expressions.

Why it exists: torch's header reads the name of a device ("cpu", "cuda:0") with `std::regex`. To compile that engine takes
a quarter of the C++ compiler's time for the wrapper (13.3 s with it, 9.5 s without, g++ 12), and it is 40 % of the wrapper's object.

`std` inside `torch::aot_inductor` is looked up there first, so a namespace of that name can answer for those few words and
pass on all others. It is written for one text of torch's function, and used only where the header says exactly that.
"""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Where torch has the function, from the folder of its headers.
HEADER: Final = Path("torch", "csrc", "inductor", "aoti_runtime", "model_base.h")

# Every line of the header that speaks of regular expressions, without blanks at its ends.
_USES: Final = (
    "#include <regex>",
    'std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");',
    "std::smatch sm;",
    "bool matched = std::regex_match(device_str, sm, re);",
)

# The groups are those of the pattern above: 1 the kind, 2 the colon and what follows, 3 the index.
READER: Final = """\
// Reads the name of a device as torch's own pattern does, without std::regex.
#include <string>
namespace torch::aot_inductor::std {
using namespace ::std;
class smatch {
 public:
  struct Group {
    bool matched = false;
    ::std::string text;
    ::std::string str() const { return text; }
    void set(const ::std::string& found) { matched = true; text = found; }
  };
  Group& operator[](int group) { return groups_[group]; }
 private:
  Group groups_[4];
};
struct regex {
  explicit regex(const char*) {}
};
inline bool regex_match(const ::std::string& device, smatch& groups, const regex&) {
  groups = smatch();
  const auto colon = device.find(':');
  const ::std::string kind = device.substr(0, colon);
  if (kind != "cpu" && kind != "cuda" && kind != "xpu" && kind != "mps") return false;
  if (colon != ::std::string::npos) {
    const ::std::string index = device.substr(colon + 1);
    if (index.empty() || index.find_first_not_of("0123456789") != ::std::string::npos) return false;
    groups[2].set(device.substr(colon));
    groups[3].set(index);
  }
  groups[0].set(device);
  groups[1].set(kind);
  return true;
}
}  // namespace torch::aot_inductor::std
"""

_OBJECT: Final = ".wrapper.o"


def applies(header: str) -> bool:
    """Whether `header`, the text of torch's `HEADER`, uses regular expressions as `READER` expects, and nowhere else."""
    lines = [line.strip() for line in header.splitlines()]
    return tuple(line for line in lines if re.search(r"regex|\bsmatch\b|\bcmatch\b", line)) == _USES


@contextmanager
def without_regex(builders: Any, includes: Path) -> Iterator[None]:
    """Inside, `builders.build()` of a wrapper's object file has `READER` before the wrapper's text.

    `builders` is Inductor's class of builders and `includes` the folder of torch's headers; where either is not as
    expected, all is left as it is.
    """
    build = getattr(builders, "build", None)
    if not callable(build) or not callable(getattr(builders, "get_target_file_path", None)) or not _found(includes):
        yield
        return

    @functools.wraps(build)
    def build_without(self: Any, *args: Any, **kwargs: Any) -> Any:
        target = str(self.get_target_file_path())
        if target.endswith(_OBJECT):
            _prepend(Path(target.removesuffix(".o") + ".cpp"))
        return build(self, *args, **kwargs)

    builders.build = build_without
    try:
        yield
    finally:
        builders.build = build


def _found(includes: Path) -> bool:
    try:
        return applies((includes / HEADER).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return False


def _prepend(source: Path) -> None:
    """Put the reader before a wrapper's text, once: Inductor keeps a text that it wrote before."""
    if not source.is_file():
        return
    text = source.read_text(encoding="utf-8")
    if not text.startswith(READER):
        source.write_text(READER + text, encoding="utf-8")
