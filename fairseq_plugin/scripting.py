"""TorchScript (``torch.jit.script``) of models with pruned heads.

TorchScript compiles a subset of Python that fairseq's own classes keep to, and the faster ones of
this plugin do not. So what is compiled is a copy of the model that consists of fairseq's classes,
with the pruned heads' weights removed, and computes the same, in float32 with ``--autocast`` too.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from torch import nn


class Scriptable:
    """A module that TorchScript compiles as one of a class of fairseq's or PyTorch's.

    Attributes:
        stock_class: the class that it is compiled as.
    """

    stock_class: ClassVar[type[nn.Module]]

    def __prepare_scriptable__(self) -> Any:
        """The module to compile in place of this one; torch.jit.script asks for it."""
        stock = copy.deepcopy(self)
        for module in list(stock.modules()):  # type: ignore[attr-defined]
            if isinstance(module, Scriptable):
                module.become_stock()
        return stock

    def become_stock(self) -> None:
        """Turn this module, but not the modules inside, into one of ``stock_class``."""
        self.__class__ = self.stock_class  # type: ignore[assignment]
