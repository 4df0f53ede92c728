"""`streamtopic init`: make the topics and the state of a model."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import say, say_json

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "init", run, "make the topics and the state of a model, or check those that exist")


def run(args: argparse.Namespace) -> int:
    """Print each topic and the state as made, changed or found; a second run changes nothing."""
    from streamtopic.service.assembly import Parts
    from streamtopic.service.instance import provision
    from streamtopic.state import ModelState

    settings = instance_settings(args, must_exist=False)
    with Parts(settings) as parts:
        topics = provision(parts.log, parts.names, settings.partitions, parts.topic_settings)
        # Asked before `parts.state`, which makes the state where it is missing.
        known = ModelState.find(parts.connection, settings.model) is not None
        fixed = parts.state.settings
    action = "found" if known else "made"
    if args.json:
        state = {
            "action": action,
            "partitions": fixed.partitions,
            "cap": fixed.cap,
            "partitioner": fixed.partitioner,
        }
        say_json({"topics": [dataclasses.asdict(topic) for topic in topics], "state": state})
        return 0
    for topic in topics:
        plural = "" if topic.partitions == 1 else "s"
        say(f"{topic.action:8} {topic.topic}, {topic.partitions} partition{plural}")
        for name, (before, now) in topic.changed.items():
            say(f"           {name} = {now} (it was {before or 'not set'})")
    say(f"{action:8} state of {settings.model} in Redis")
    return 0
