"""The way from models to structural schemas, and the generated files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import Field

from preheat_operator.api import crds
from preheat_operator.api.base import ApiModel
from preheat_operator.api.schema import SchemaError, structural

REPOSITORY = Path(__file__).resolve().parents[3]
FORBIDDEN = {"$ref", "$defs", "anyOf", "allOf", "oneOf", "const", "title", "exclusiveMinimum", "exclusiveMaximum"}


def _nodes(value: Any) -> Any:
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from _nodes(child)
    elif isinstance(value, list):
        for child in value:
            yield from _nodes(child)


def test_the_schemas_use_only_what_an_api_server_takes() -> None:
    for crd in (crds.compiled_model_crd(), crds.compiled_model_index_crd()):
        for node in _nodes(crd["spec"]["versions"][0]["schema"]):
            assert not FORBIDDEN & {key for key in node if not isinstance(node[key], dict) or key == "$defs"}
            assert node.get("default", 0) is not None


def test_what_cannot_be_said_is_an_error_that_names_the_place() -> None:
    class Exclusive(ApiModel):
        """A model."""

        size: int = Field(gt=0)

    class Union(ApiModel):
        """A model."""

        size: int | str

    with pytest.raises(SchemaError, match=r"Exclusive\.size.*exclusiveMinimum"):
        structural(Exclusive)
    with pytest.raises(SchemaError, match=r"Union\.size.*one of 2 types"):
        structural(Union)


def test_generated_files_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert crds.main(["--check", "--root", str(REPOSITORY)]) == 0, capsys.readouterr().err


def test_the_check_notices_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crds.main(["--root", str(tmp_path)]) == 0
    assert crds.main(["--check", "--root", str(tmp_path)]) == 0
    changed = tmp_path / "crds" / "preheat.dev_compiledmodels.yaml"
    changed.write_text(changed.read_text().replace("maxItems: 8", "maxItems: 9", 1))
    assert crds.main(["--check", "--root", str(tmp_path)]) == 1
    assert str(changed) in capsys.readouterr().err
    assert "maxItems: 9" in changed.read_text()


def test_the_files_are_the_crds() -> None:
    for crd in (crds.compiled_model_crd(), crds.compiled_model_index_crd()):
        path = REPOSITORY / "crds" / f"preheat.dev_{crd['spec']['names']['plural']}.yaml"
        assert yaml.safe_load(path.read_text()) == crd


def test_the_reference_has_every_field() -> None:
    text = (REPOSITORY / "docs" / "api.md").read_text()
    schema = crds.compiled_model_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    def paths(node: dict[str, Any], path: str) -> Any:
        for name, child in node.get("properties", {}).items():
            below = f"{path}.{name}".lstrip(".")
            yield below
            item = child.get("items")
            yield from paths(item or child, f"{below}[]" if item else below)

    for top in ("spec", "status"):
        for path in paths(schema["properties"][top], top):
            assert f"`{path}`" in text
