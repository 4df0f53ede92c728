"""`streamtopic upgrade` raises the layout of a model's state after a change of the program, or takes it back."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import progress, say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.upgrade_state import Upgraded
    from streamtopic.state.layout import Layouts

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "upgrade", _run, "let a state have the newest layout, once every process is new")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--back", action="store_true", help="back to the layout of the version before; stop all first")
    chosen.add_argument("--show", action="store_true", help="show layouts and formats, and change nothing")


def _run(args: argparse.Namespace) -> int:
    """Raise or take back the layout, or show all numbers."""
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.upgrade_state import found_layouts, step_back, upgrade

    with Service(instance_settings(args)) as service:
        if args.show:
            return _show(found_layouts(service), as_json=args.json)
        if args.back:
            _refuse_running(service)
        act = step_back if args.back else upgrade
        with progress("changing the layout", "partitions", quiet=args.json) as update:
            done = act(service, update)
    if args.json:
        say_json(dataclasses.asdict(done))
    else:
        _tell(done)
    return 0


def _refuse_running(service: Service) -> None:
    """Raise UsageError where a process works on the model."""
    from streamtopic.service.processes import running

    found = running(service)
    if found:
        raise UsageError(f"{'; '.join(found)}: stop every process of the service first")


def _show(found: Layouts, *, as_json: bool) -> int:
    from streamtopic.formats import TABLE, program

    formats = {form.name: {"written": form.written, "read": list(form.read)} for form in TABLE}
    if as_json:
        say_json({"program": program(), "state": dataclasses.asdict(found), "formats": formats})
        return 0
    writer = f"streamtopic {found.program}" if found.program else "an older program"
    say(f"layout of the state: {_words(found)}, set by {writer}")
    say(f"this is streamtopic {program()}")
    for form in TABLE:
        say(f"{form.name}: writes {form.written}, reads {form.numbers}")
    return 0


def _words(found: Layouts) -> str:
    """Return the layouts of a model in words."""
    if len(found.all) == 1:
        return str(found.model)
    partitions = ", ".join(f"{layout or 'none'}" for layout in found.partitions)
    return f"{found.model}, its partitions {partitions}"


def _tell(done: Upgraded) -> None:
    if done.before.all == done.after.all:
        say(f"the state has layout {_words(done.after)} already")
        return
    say(f"layout {_words(done.before)} is now {_words(done.after)}")
    if done.segments or done.traces:
        say(f"{done.segments} segments were written anew, {done.traces} waiting deletions lost their trace")
