"""The models that each invocation of a request path may run on."""

from __future__ import annotations

from collections.abc import Mapping

from vinelm.errors import ConfigError
from vinelm.template import Template

Models = tuple[str, ...]


def models_by_depth(template: Template) -> list[Models | Mapping[str, Models]]:
    """Return the models that each invocation may run on; by stage where several stages with different models may come.

    Raises:
        ConfigError: several stages may come first, with different models: which one comes is only known once it runs.
    """
    if template.is_linear:
        return [stage.models or () for stage in template.invocations]
    first, *others = template.first_stages
    for other in others:
        if set(other.models or ()) != set(first.models or ()):
            raise ConfigError(
                f"the stages {first.name!r} and {other.name!r} may both come first and allow different models, but which one "
                "comes is only known once it runs: allow the same models in both"
            )
    found: list[Models | Mapping[str, Models]] = []
    for stages in template.flow.stages_at:
        models = {name: template.stage(name).models or () for name in stages}
        one = next(iter(models.values()))
        found.append(one if all(set(other) == set(one) for other in models.values()) else models)
    return found
