"""What a package refuses is thrown in its words alone, and not printed."""

import pytest

from preheat_compiler.refusals import silent

TORCHS = """
#define AOTI_RUNTIME_TRY(...)                       \\
  } catch (const std::exception& e) {             \\
    g_aoti_last_error = e.what();                 \\
    std::cerr << "Error: " << e.what() << '\\n';   \\
    return AOTI_RUNTIME_FAILURE;                  \\
  }
  std::cerr << "Error: num_models must be positive, but got 0\\n";
"""


def test_what_a_call_is_refused_for_is_kept_and_not_printed():
    made = silent(TORCHS)
    assert "e.what() <<" not in made
    assert "g_aoti_last_error = e.what();" in made
    assert "num_models" in made, "that is no call's"
    assert [line.endswith("\\") for line in made.splitlines()] == [line.endswith("\\") for line in TORCHS.splitlines()]


@pytest.mark.parametrize("name", ["TORCH_CHECK", "AOTI_TORCH_CHECK"])
def test_an_index_out_of_range_is_thrown_in_words_alone(name):
    words = '"index out of bounds: 0 <= tmp1 < 8L"'
    line = f"        {name}(((0 <= tmp1) & (tmp1 < 8L)) | !(tmp9), {words});\n"
    made = silent(f"a;\n{line}b;\n")
    thrown = f"if (__builtin_expect(!(((0 <= tmp1) & (tmp1 < 8L)) | !(tmp9)), 0)) throw std::runtime_error({words});"
    assert made == f"a;\n        {thrown}\nb;\n"
    assert silent(made) == made


@pytest.mark.parametrize(
    "text",
    [
        'AOTI_TORCH_CHECK(n == 3, "another check");\n',
        'if (x) AOTI_TORCH_CHECK((at < 8L), "index out of bounds: at < 8L");\n',
        "int main() { std::cerr << e.what(); }\n",
    ],
)
def test_what_is_not_as_expected_stays_as_it_is(text):
    assert silent(text) == text
