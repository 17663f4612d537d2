"""The command `wander`. Help and everything that needs no model start without torch.

Ctrl-C and SIGTERM at any moment, in the middle of an import or of a long pass of the model too.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from itertools import pairwise
from re import fullmatch

from cyclopts import (
    App,
    CycloptsError,
    MissingArgumentError,
    Parameter,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from wanderlust import __version__, plugins
from wanderlust._lazy import missing_package
from wanderlust.cli.commands import GROUP, VERSION_FLAGS, Command, installed_commands, note_given
from wanderlust.cli.output import print_note, replace_unencodable, reserve_stdout_for_json
from wanderlust.errors import UsageError, WanderlustError

COMMANDS = {
    "demo": ("demo_command:demo_command", "Teach a small language model tic-tac-toe on this machine, in minutes."),
    "play": ("play_command:play_command", "Play an environment at the terminal, alone or against a model."),
    "eval": ("eval:eval_command", "Play a split with any policy: figures with 95% intervals."),
    "serve": ("serve:serve_command", "Serve a model to other programs, as an OpenAI-compatible endpoint."),
    "train": ("train_command:train_command", "Train a checkpoint in any environment by reinforcement learning."),
    "sft": ("finetune_command:sft_command", "Train a checkpoint on conversations: a file, or what a run has stored."),
    "dpo": ("finetune_command:dpo_command", "Train a checkpoint on pairs of a better and a worse answer."),
    "reward-model": ("finetune_command:reward_model_command", "Train a reward model on pairs, ratings or rollouts."),
    "runs": ("inspect:runs_command", "List the runs in a folder."),
    "compare": ("inspect:compare_command", "Compare two evaluations: which is better, and on which tasks?"),
    "studio": ("studio_command:studio_command", "See runs in the browser: rollouts, training, worlds, comparisons."),
    "ctl": ("inspect:control_command", "Pause, resume or stop a running evaluation or training run."),
    "show": ("inspect:show_command", "List a run's rollouts, or read one of them."),
    "export": ("export:export_command", "Write a run's rollouts for other programs: jsonl, sft, dpo, atif, parquet."),
    "watch": ("watch_command:watch_command", "Watch a policy play one task, turn by turn."),
    "serve-env": ("serve:serve_env_command", "Serve an environment over OpenEnv's WebSocket protocol."),
    "new": ("authoring:new_command", "Create a package for your environment."),
    "check": ("authoring:check_command", "Check that an environment keeps its contract."),
    "probe": ("authoring:probe_command", "Test a reward for exploits with degenerate policies."),
    "scale": ("scale_command:scale_command", "Best-of-n, majority, revision: what more tokens at test time bring."),
    "judge": ("judge_command:judge", "Calibrate a judge; measure best-of-n by judge."),
    "rescore": ("rescore:rescore_command", "Judge an evaluation's rollouts again with another rubric."),
    "rerun": ("rerun_command:rerun_command", "Make a run again from its wander.lock."),
    "list": ("inspect:list_command", "List the environments that are installed."),
}
"""Module and function of each command of the core, imported when it is called, and its line in the overview."""


def build(name: str = "", *, overview: bool = True) -> App:
    """The command line, ready to parse, with the command `name` alone; where there is none of that name, with all.

    All are listed without being imported; without `overview`, each has its own help text.
    """
    core = {one: Command(target=f"wanderlust.cli.{place}", help=line) for one, (place, line) in COMMANDS.items()}
    named = {name: core[name]} if name in core else installed_commands(core, name)
    app = App(
        name="wander",
        help="Environments in which language models learn to act: play, evaluate, train.",
        help_format="plaintext",
        version=__version__,
        version_flags=VERSION_FLAGS,
        # A flag is off unless it is given: its default is not worth showing.
        default_parameter=Parameter(
            negative=(), show_default=lambda default: None if default is False or default == "" else default
        ),
        suppress_keyboard_interrupt=False,
        config=note_given,
    )
    for one, command in (named or {**core, **installed_commands(core)}).items():
        app.command(command.target, name=one, help=None if named or not overview else command.help)
    return app


class _LogLines(logging.Handler):
    """Prints what the library logs as lines on stderr, like the commands' own."""

    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


def main(words: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 for success, 2 for a wrong call, 1 for any other failure, 130 for Ctrl-C.

    Whatever goes wrong on purpose is one line on stderr.
    """
    replace_unencodable()
    log = logging.getLogger("wanderlust")
    if not any(isinstance(handler, _LogLines) for handler in log.handlers):
        log.addHandler(_LogLines())
        log.setLevel(logging.INFO)
        log.propagate = False
    given = sys.argv[1:] if words is None else list(words)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    try:
        with reserve_stdout_for_json() if "--json" in given else nullcontext():
            code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _run(words: list[str]) -> int:
    try:
        app = build(*words[:1])
        chain, apps, rest = app.parse_commands(words)
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        if chain and not rest and apps[-1].default_command is None:
            raise UsageError(f"wander {' '.join(chain)} needs one of its commands")
    except BrokenPipeError:
        raise
    except CycloptsError as error:
        line, code = _describe_usage_error(error), 2
    except WanderlustError as error:
        line, code = str(error), 2 if isinstance(error, UsageError) else 1
    except OSError as error:
        line, code = _describe_os_error(error, words), 1
    except ImportError as error:
        line, code = missing_package(error), 2
        if not line:
            raise
    except KeyboardInterrupt:
        line, code = "stopped", 130
    else:
        return code if isinstance(code, int) else 0
    print_note(line)
    return code


def _describe_os_error(error: OSError, words: Sequence[str]) -> str:
    """The error in one line, with the folder of `--out` where that is what cannot be written."""
    out = next((value for option, value in pairwise(words) if option == "--out"), None)
    if out is None or os.path.basename(out) not in str(error.filename):
        return str(error)
    return f"cannot write to --out {out}: {error.strerror}"


def _describe_usage_error(error: CycloptsError) -> str:
    """The error of a wrong call in one line, with the nearest valid names."""
    command = " ".join(["wander", *(error.command_chain or ())])
    if isinstance(error, UnknownCommandError):
        name, valid = (error.unused_tokens or ["?"])[0], command_names(error.app or build())
        no_command = f"{command} has no command" if error.command_chain else "no command"
        if install := plugins.how_to_install(".".join([GROUP, *(error.command_chain or ())]), name):
            return f"{no_command} {name!r}: {install}"
        return f"{no_command} {name!r}; {_suggest(name, valid, f'{command} --help')}"
    if unknown := _unknown_option(error):
        return f"{command} has no option {unknown}{_place_of_option(unknown, error.command_chain or ())}"
    if isinstance(error, UnusedCliTokensError):
        return f"{command} takes no further {', '.join(map(repr, error.unused_tokens or ()))} (see {command} --help)"
    if type(error) is MissingArgumentError and error.argument is not None and error.keyword is None:
        return f"{command} needs {error.argument.name} (see {command} --help)"
    return f"{command}: {error}"


def command_names(app: App) -> list[str]:
    """Commands of an app; flags such as --help are none."""
    return [name for name in app if not name.startswith("-")]


def _unknown_option(error: CycloptsError) -> str:
    """The option that no parameter takes; empty where that is not what is wrong. Of two errors it is the first told."""
    if isinstance(error, UnknownOptionError):
        return (error.token.keyword or error.token.value).split("=")[0]
    if not isinstance(error, MissingArgumentError) or error.argument is None:
        return ""
    left = [token.split("=")[0] for token in error.unused_tokens or () if fullmatch(r"-[a-zA-Z]|--\w.*", token)]
    return next((option for option in left if option not in error.argument.names), "")


def _place_of_option(option: str, chain: Sequence[str]) -> str:
    """The commands beside a nested one that take the option; else the nearest ones that the command itself takes."""
    app = build(chain[0])

    def names(*below: str) -> list[str]:
        with app.app_stack([chain[0], *below]):  # has the defaults by which options are named
            arguments = (app[chain[0]][below[0]] if below else app[chain[0]]).assemble_argument_collection()
        return sorted({name for argument in arguments for name in argument.names if name.startswith("-")})

    siblings = [name for name in command_names(app[chain[0]]) if option in names(name)]
    if siblings:
        return f": it is for wander {chain[0]} {', '.join(siblings)}"
    own = [name for name in names(*chain[1:]) if name.startswith("--")]
    return f"; {_suggest(option, own, ' '.join(['wander', *chain, '--help']))}"


def _suggest(name: str, valid: Sequence[str], help_command: str) -> str:
    """The valid names nearest to `name`, or all of them, and where they are explained."""
    near = get_close_matches(name, valid, n=3)
    guess = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(valid)}"
    return f"{guess} (see {help_command})"


if __name__ == "__main__":
    main()
