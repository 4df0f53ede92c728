"""Settings of downstream tasks: a table of tables, `[tasks.NAME]`."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

__all__ = ["TaskSettings", "Tasks"]

# As documents' labels: settings load before, and without, the code of events.
MAX_LABELS = 64
MAX_LABEL = 256


class TaskSettings(BaseModel):
    """One task: documents whose label of its name says a class, and how its head is fitted."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    topics: tuple[str, ...] = Field((), description="Anchor words of the topics that the head rests on; none: all.")
    ridge: float = Field(1e-9, ge=1e-18, le=1e6, description="lambda, the strong convexity of the loss.")
    tolerance: float = Field(1e-4, ge=1e-15, le=1e6, description="Bound on the distance of a head from the optimum.")
    tau: float = Field(0.0, ge=0, le=1, description="Loss above the optimum that is allowed, the paper's tau.")

    def model_post_init(self, _context: Any, /) -> None:  # noqa: ANN401  pydantic's signature
        """Refuse a topic that is named twice."""
        if len(set(self.topics)) < len(self.topics):
            raise ValueError("a topic is declared twice: name each anchor word once")


def _name(name: str) -> str:
    if not (0 < len(name) <= MAX_LABEL and name.isprintable() and name == name.strip()):
        raise ValueError(f"the name of a task has 1 to {MAX_LABEL} printable characters, as labels of documents have")
    return name


def _decoded(value: object) -> object:
    """Read JSON, as variables and `--set` give it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f'not JSON such as {{"section": {{}}}} ({error})') from None


def _few(tasks: dict[str, TaskSettings]) -> dict[str, TaskSettings]:
    if len(tasks) > MAX_LABELS:
        raise ValueError(f"{len(tasks)} tasks, and a document has labels of {MAX_LABELS} at most")
    return tasks


Tasks = Annotated[
    dict[Annotated[str, AfterValidator(_name)], TaskSettings],
    NoDecode,
    BeforeValidator(_decoded),
    AfterValidator(_few),
]
