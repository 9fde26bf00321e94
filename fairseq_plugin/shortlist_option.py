"""The option ``--shortlist`` of fairseq-generate and fairseq-interactive."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import wraps
from pathlib import Path
from typing import Any

from fairseq import options
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_plugin.decoding.shortlist import use_shortlist
from headprune.shortlist import Shortlist

_FLAG = "--shortlist"


class ShortlistOption:
    """The shortlist that the command line names, for all generators of the process.

    fairseq's options of a generation are a fixed list, so this one does not get to the generators.
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._shortlist: Shortlist | None = None

    def read(self, args: Namespace) -> None:
        """Read the file that the parsed options of a command name, if any.

        Raises:
            DataError: it is no shortlist.
        """
        self._name = getattr(args, "shortlist", None)
        self._shortlist = None if self._name is None else Shortlist.load(Path(self._name))

    def add_to_fairseq(self, kind: type[nn.Module]) -> None:
        """Add the option to fairseq's parsers, and the shortlist to its generators.

        Args:
            kind: the class of the models that have shortlists.
        """
        add_generation_args, build = options.add_generation_args, SequenceGenerator.__init__

        @wraps(add_generation_args)
        def add_with_shortlist(parser: ArgumentParser) -> Any:
            parser.add_argument(
                _FLAG,
                metavar="FILE",
                help="choose among the target words of the words of a sentence; a file from "
                "`headprune shortlist`",
            )
            return add_generation_args(parser)

        @wraps(build)
        def build_with_shortlist(generator: Any, *arguments: Any, **keywords: Any) -> None:
            build(generator, *arguments, **keywords)
            if self._shortlist is not None:
                name = f"{_FLAG} {self._name}"
                use_shortlist(generator, self._shortlist, kind=kind, name=name)

        options.add_generation_args = add_with_shortlist
        SequenceGenerator.__init__ = build_with_shortlist


shortlist_option = ShortlistOption()
