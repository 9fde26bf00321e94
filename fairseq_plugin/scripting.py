"""TorchScript (``torch.jit.script``) of models with pruned heads.

TorchScript compiles a subset of Python. fairseq's classes keep to it, the faster classes of this
plugin do not. A copy of the model that consists of fairseq's classes is therefore compiled. The
weights of pruned heads are removed from it too, and it computes the same, always in float32.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from torch import nn


class Scriptable:
    """A module that TorchScript compiles as an instance of a class of fairseq or PyTorch.

    Attributes:
        stock_class: this class.
    """

    stock_class: ClassVar[type[nn.Module]]

    def __prepare_scriptable__(self) -> Any:
        """Return the module to compile in place of this one; called by torch.jit.script."""
        stock = copy.deepcopy(self)
        for module in list(stock.modules()):  # type: ignore[attr-defined]
            if isinstance(module, Scriptable):
                module.become_stock()
        return stock

    def become_stock(self) -> None:
        """Turn this module, but not its submodules, into an instance of ``stock_class``."""
        self.__class__ = self.stock_class  # type: ignore[assignment]
