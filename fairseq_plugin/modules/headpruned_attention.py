"""Multi-head attention with pruned heads.

Budhraja et al. 2020, equation 2, for an attention with H heads:

    head_h = softmax(Q W_q^h (K W_k^h)^T / sqrt(d)) V W_v^h
    out    = concat(xi_1 head_1, ..., xi_H head_H) W_o + b_o,    xi_h in {0, 1}

``mask`` computes just that. ``remove`` leaves out the rows of W_q, W_k, W_v and the columns of W_o
where xi_h = 0, and gives the same output. With no head left, both give b_o at every position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_plugin.decoding.beam_order import BeamOrder
from fairseq_plugin.decoding.key_value_cache import KeyValueCache
from fairseq_plugin.decoding.recycling import Recycler
from fairseq_plugin.fitting import HEAD_DIMENSION, HeadForm
from fairseq_plugin.scripting import Scriptable
from headprune.errors import UsageError
from headprune.surgery import cut

IncrementalState = dict[str, dict[str, Tensor | None]]

_NOT_ADAPRUNE = (
    "fairseq's --mha-heads-to-keep (AdaPrune) does not know which heads are pruned already; "
    "give --head-plan, or prune the checkpoint with `headprune prune`"
)


class HeadPrunedAttention(MultiheadAttention, Scriptable):
    """fairseq's MultiheadAttention with heads pruned; its interface, checkpoints and caches.

    The weights start as those of the unpruned attention would from the same random state: the
    full matrices are drawn, then cut. ``num_heads`` and ``head_dim`` stay those of the unpruned
    attention; ``kept_heads`` holds the numbers of the heads that are left.

    Args:
        embed_dim: C, the width of the queries and of the output.
        num_heads: H, the heads of the unpruned attention.
        kept: the heads that stay, sorted.
        form: ``remove`` or ``mask``.
        name: the component and layer (``ES: layer 3``), to begin error messages with.
        options: those of MultiheadAttention except ``add_bias_kv`` and ``add_zero_attn``, which
            fairseq's layers do not use.

    Raises:
        UsageError: ``add_bias_kv`` or ``add_zero_attn``.
    """

    stock_class = MultiheadAttention

    kept_heads: Tensor  # numbers of the heads left
    xi: Tensor | None  # H, the gates of form mask

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kept: Sequence[int],
        form: HeadForm,
        name: str,
        **options: object,
    ) -> None:
        for option in ("add_bias_kv", "add_zero_attn"):
            if options.get(option):
                raise UsageError(f"{name}: {option} cannot be used with pruned heads")
        super().__init__(embed_dim, num_heads, **options)
        self.form = form
        self.name = name
        numbers = torch.tensor(tuple(kept), dtype=torch.long)
        self.register_buffer("kept_heads", numbers, persistent=False)
        self.register_buffer("xi", None)
        if form == "mask":
            if len(kept) < num_heads:
                xi = torch.zeros(num_heads)
                xi[list(kept)] = 1
                self.register_buffer("xi", xi, persistent=False)
        elif len(kept) < num_heads:
            self._remove_heads(kept)

    @property
    def heads_computed(self) -> int:
        """The number of heads that are computed: all in form mask, the kept ones in remove."""
        return self.num_heads if self.form == "mask" else len(self.kept_heads)

    def _remove_heads(self, kept: Sequence[int]) -> None:
        if not kept:
            # Projections without a row would be parameters that no output depends on, and
            # distributed training waits for the gradient of each parameter.
            for name in ("q_proj", "k_proj", "v_proj"):
                setattr(self, name, None)
        for key, dim in HEAD_DIMENSION.items():
            projection, attribute = key.split(".")
            linear = getattr(self, projection)
            if linear is None or getattr(linear, attribute) is None:
                continue
            weight = getattr(linear, attribute).detach()
            part = nn.Parameter(cut(weight, kept, units=self.num_heads, dim=dim))
            setattr(linear, attribute, part)
            linear.out_features, linear.in_features = linear.weight.shape

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: IncrementalState | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the attention of the queries to the keys (equation 2 of the paper).

        Args:
            query: T x B x C.
            key, value: S x B x C; ``value`` is not looked at, as in every use by fairseq's layers
                it is ``key``.
            key_padding_mask: B x S, true where a key is padding.
            incremental_state: the cache of incremental decoding.
            need_weights: return the attention weights too, averaged over the heads.
            static_kv: the keys never change after the first step (encoder-decoder attention).
            attn_mask: T x S, added to the scores (true, if boolean, where not to attend).
            before_softmax: return the scores before the softmax and the values instead.
            need_head_weights: return the weights of every head; implies ``need_weights``.

        Returns:
            The output, T x B x C, and the weights: B x T x S, or H' x B x T x S by head, H' the
            heads computed; None unless asked for, or where no head is left. Masked heads do not
            enter the average.
        """
        length, batch, _ = query.shape
        if self.heads_computed == 0:
            if before_softmax:
                raise ValueError(f"{self.name} keeps no head, so it has no scores")
            # The cut output matrix has no column: nothing but its bias is left.
            out = self.out_proj(query.new_zeros(length, batch, 0))
            if torch.is_grad_enabled():
                # Sums over empty slices: they are 0, but give query and key zero gradients, as
                # distributed training waits for a gradient of every parameter.
                out = out + query[:0].sum() + (0 if key is None else key[:0].sum())
            return out, None

        q = self._split_heads(self.q_proj(query))  # B x H' x T x d
        k, v, padding = self._keys_and_values(
            query, key, key_padding_mask, incremental_state, static_kv
        )  # B' x H' x S x d, B' x S

        asked = need_weights or need_head_weights
        if (
            incremental_state is not None
            and not (asked or before_softmax or torch.is_grad_enabled())
            and padding is None
            and attn_mask is None
            and q.size(2) == 1
            and k.size(0) == batch
            and self._dropout_p() == 0
        ):
            return self.out_proj(self._one_step(q, k, v)), None

        if k.size(0) != batch:
            # Beam search keeps one copy of a sentence's keys for all its hypotheses: take
            # their queries as that many more positions of the one sentence.
            beam = batch // k.size(0)
            q = q.view(k.size(0), beam, *q.shape[1:]).transpose(1, 2)  # B' x H' x beam x T x d
            q = q.reshape(k.size(0), q.size(1), beam * length, self.head_dim)
            if attn_mask is not None:
                attn_mask = attn_mask.repeat(beam, 1)  # beam*T x S
        bias = _score_bias(attn_mask, padding, like=q)  # broadcasts to B' x H' x T x S

        weights = None
        # For the one query of a decoding step, the fused kernel is the slower one.
        if asked or before_softmax or incremental_state is not None:
            scores = self.scaling * q @ k.transpose(2, 3)  # B' x H' x T x S
            if bias is not None:
                scores = scores + bias
            if before_softmax:
                return self._unfold_beam(scores, batch).flatten(0, 1), v.flatten(0, 1)
            weights = scores.softmax(dim=-1, dtype=torch.float32)
            context = self.dropout_module(weights.type_as(q)) @ v  # B' x H' x T x d
            weights = (
                self._reported_weights(self._unfold_beam(weights, batch), need_head_weights)
                if asked
                else None
            )
        else:
            context = F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, dropout_p=self._dropout_p(), scale=self.scaling
            )  # B' x H' x T x d

        context = self._unfold_beam(context, batch)  # B x H' x T x d
        if self.xi is not None:
            context = context * self.xi.type_as(context)[:, None, None]
        context = context.permute(2, 0, 1, 3).flatten(2)  # T x B x H'd
        return self.out_proj(context), weights

    def _one_step(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Context, 1 x B x H'd, of one query each, B x H' x 1 x d, without gradients.

        The result is that of the general code, with fewer kernel calls, which take most of the time
        of a single step.
        """
        batch, heads, _, width = q.shape
        q = q.reshape(batch * heads, 1, width)
        k, v = (x.view(batch * heads, -1, width) for x in (k, v))  # B*H' x S x d
        zero = q.new_zeros(())
        scores = torch.baddbmm(zero, q, k.transpose(1, 2), beta=0, alpha=self.scaling)
        context = torch.bmm(scores.softmax(dim=-1), v).view(batch, heads, width)
        if self.xi is not None:
            context = context * self.xi.type_as(context)[:, None]
        return context.view(1, batch, heads * width)

    def _split_heads(self, x: Tensor) -> Tensor:
        """S x B x H'd -> B x H' x S x d."""
        return x.view(*x.shape[:2], self.heads_computed, self.head_dim).permute(1, 2, 0, 3)

    def _unfold_beam(self, x: Tensor, batch: int) -> Tensor:
        """B' x H' x beam*T x any -> B x H' x T x any; the same where B' is B."""
        if x.size(0) == batch:
            return x
        sentences, heads, positions, last = x.shape
        beam = batch // sentences
        x = x.view(sentences, heads, beam, positions // beam, last).transpose(1, 2)
        return x.reshape(batch, heads, positions // beam, last)

    def _dropout_p(self) -> float:
        dropout = self.dropout_module
        return dropout.p if dropout.training or dropout.apply_during_inference else 0.0

    def _keys_and_values(
        self,
        query: Tensor,
        key: Tensor | None,
        padding: Tensor | None,
        incremental_state: IncrementalState | None,
        static_kv: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys and values, B' x H' x S x d each, and the padding, B' x S; cached where asked."""
        cache = None if incremental_state is None else self._cache(incremental_state)
        if cache is not None and static_kv:
            known_keys, known_values = cache.get("prev_key"), cache.get("prev_value")
            if known_keys is not None and known_values is not None:
                return known_keys, known_values, cache.get("prev_key_padding_mask")

        source = query if key is None else key  # S x B x C
        searching = self.encoder_decoder_attention and incremental_state is not None
        if searching and self.beam_size > 1 and source.size(1) == query.size(1):
            source = source[:, :: self.beam_size]  # a sentence's hypotheses stand side by side
            padding = None if padding is None else padding[:: self.beam_size]
        k = self._split_heads(self.k_proj(source))
        v = self._split_heads(self.v_proj(source))

        if cache is not None:
            old_padding = cache.get("prev_key_padding_mask")
            assert incremental_state is not None
            recycler = Recycler.of(incremental_state)
            k = cache.append("prev_key", k, recycler)
            v = cache.append("prev_value", v, recycler)
            if padding is not None or old_padding is not None:
                padding = self._append_prev_key_padding_mask(
                    key_padding_mask=padding,
                    prev_key_padding_mask=old_padding,
                    batch_size=k.size(0),
                    src_len=k.size(2),
                    static_kv=static_kv,
                )
            cache["prev_key_padding_mask"] = padding
            cache.beam = query.size(1) // k.size(0)
            self._set_input_buffer(incremental_state, cache)
        return k, v, padding

    def _cache(self, incremental_state: IncrementalState) -> KeyValueCache:
        return KeyValueCache.of(self._get_input_buffer(incremental_state))

    def reorder_incremental_state(
        self, incremental_state: IncrementalState | None, new_order: Tensor
    ) -> IncrementalState | None:
        """Keep the keys and values of the hypotheses ``new_order``, numbers of rows."""
        if incremental_state is not None:
            self.reorder_cache(incremental_state, BeamOrder(new_order))
        return incremental_state

    def reorder_cache(self, incremental_state: IncrementalState, order: BeamOrder) -> None:
        """The same, for an order that attentions share so that it is analysed only once."""
        cache = self._cache(incremental_state)
        if cache:
            cache.reorder(order, Recycler.of(incremental_state))
            self._set_input_buffer(incremental_state, cache)

    def _reported_weights(self, weights: Tensor, by_head: bool) -> Tensor | None:
        """B x H' x T x S -> H' x B x T x S, or B x T x S averaged over the kept heads."""
        if by_head:
            return weights.transpose(0, 1)
        if self.xi is None:
            return weights.mean(dim=1)
        if len(self.kept_heads) == 0:
            return None
        return weights[:, self.kept_heads].mean(dim=1)

    def become_stock(self) -> None:
        kept = self.kept_heads.tolist()
        if self.form == "mask" and self.xi is not None:
            self._remove_heads(kept)
        if not kept:
            self._add_head_of_zeros()  # fairseq's attention needs one
        heads = max(1, len(kept))
        self.num_heads, self.embed_dim = heads, heads * self.head_dim
        self._set_skip_embed_dim_check()
        del self.kept_heads, self.xi
        super().become_stock()

    def _add_head_of_zeros(self) -> None:
        width, weight = self.out_proj.out_features, self.out_proj.weight
        for name, inputs in (("q_proj", width), ("k_proj", self.kdim), ("v_proj", self.vdim)):
            projection = nn.Linear(inputs, self.head_dim, device=weight.device, dtype=weight.dtype)
            for parameter in projection.parameters():
                nn.init.zeros_(parameter)
            setattr(self, name, projection)
        self.out_proj.weight = nn.Parameter(weight.new_zeros(width, self.head_dim))

    def _get_reserve_head_index(self, num_heads_to_keep: int) -> NoReturn:
        raise UsageError(_NOT_ADAPRUNE)

    def _adaptive_prune_heads(self, reserve_head_index: list[tuple[int, int]]) -> NoReturn:
        raise UsageError(_NOT_ADAPRUNE)


def _score_bias(attn_mask: Tensor | None, padding: Tensor | None, *, like: Tensor) -> Tensor | None:
    """One additive mask from the two, broadcasting to B x H x T x S, of the type of ``like``."""
    bias = None
    if attn_mask is not None:
        bias = attn_mask  # T x S
        if attn_mask.dtype == torch.bool:
            bias = like.new_zeros(attn_mask.shape).masked_fill(attn_mask, float("-inf"))
        bias = bias.type_as(like)
    if padding is not None:
        padded = padding.bool()[:, None, None, :]  # B x 1 x 1 x S
        zeros = like.new_zeros(padded.shape) if bias is None else bias
        bias = zeros.masked_fill(padded, float("-inf"))
    return bias
