"""Tensor parallelism: the weights of a layer divided among ranks that work on the same batch.

Data parallelism, and ZeRO with it, divides the batch; tensor parallelism divides the matrices. Two
layers in a row then need one exchange (Shoeybi et al. 2019, "Megatron-LM", section 3):

    column-parallel   Y_r = X A_r           A is cut by outputs: X whole, Y_r a part of Y
    row-parallel      Z = sum of Y_r B_r    B is cut by inputs: Y_r a part, Z whole again

The heads of attention, and the inner features of the feed-forward network, lie between such a
pair, and no rank needs another's. For autograd the exchange is two conjugate functions around the
pair. `copy_in` does nothing in forward and sums gradients in backward, since every rank's part of
the layer contributes to the gradient of X. `sum_out` sums in forward and does nothing in backward.

What lies outside of the pairs (LayerNorm, residual stream, their dropout) is *replicated*: all
ranks of the group compute the same, bit for bit. `activations.py` lives on that.

Ranks form a grid, `mesh(dp, tp)`. A row of it holds one replica of the model, cut over "tp". In a
column, "dp", the ranks hold the same part of different replicas, and ZeRO shards that part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from . import comm
from .models import GPT, Attention
from .parts import Cut, join, take


def mesh(dp: int, tp: int) -> DeviceMesh:
    """A grid of dp x tp ranks with the dimensions "dp" and "tp". All ranks of the world call it.

    Rank i stands in row i // tp and column i % tp: the ranks of one replica, which exchange most,
    are neighbours. `get_group("tp")` is this rank's row, for `parallelize`; `get_group("dp")` its
    column, for `zero.shard(model, group=...)`. All ranks of a row must read the same batch, number
    `get_local_rank("dp")` of `dp`. Raises ValueError if dp * tp is not the number of ranks.
    """
    comm.init()
    if dp < 1 or tp < 1 or dp * tp != comm.world_size():
        raise ValueError(
            f"mesh(dp={dp}, tp={tp}) needs {dp * tp} ranks, but there are {comm.world_size()}"
        )
    return init_device_mesh(comm.device().type, (dp, tp), mesh_dim_names=("dp", "tp"))


def parallelize(model: GPT, group: comm.Group) -> GPT:
    """Cut the weights of `model` over the ranks of `group`, in place; returns the model.

    Collective. Attention is cut by heads, the feed-forward network by inner features, the token
    embedding and the head by vocabulary; everything else stays whole on every rank. Names stay the
    same. All ranks start from the weights of the group's first rank and from one random seed.
    Afterwards `zero.shard(model, group=<the dp group>)` may shard what each rank holds. Raises
    TypeError for another model, and ValueError if the ranks do not divide the heads or outnumber
    the tokens, or if the model is sharded already, cut already, or on the meta device.
    """
    group = dist.group.WORLD if group is None else group
    _check(model, comm.world_size(group))
    _start_equal(model, group)
    tied = model.head.weight is model.wte.weight
    model.wte = VocabularyParallelEmbedding(model.wte, group)
    model.head = ColumnParallelLinear(model.head, group, gather=True)
    if tied:
        model.head.weight = model.wte.weight
    for block in model.blocks:
        block.attention = ParallelAttention(block.attention, group)
        network = block.feed_forward
        network.up = ColumnParallelLinear(network.up, group)
        network.down = RowParallelLinear(network.down, group)
    return model


# --- the conjugate functions ---------------------------------------------------------------------


def copy_in(x: Tensor, group: comm.Group) -> Tensor:
    """x as it is; its gradient is summed over the ranks. Collective in backward."""
    return _CopyIn.apply(x, group)


def sum_out(x: Tensor, group: comm.Group) -> Tensor:
    """The sum of all ranks' x, a new tensor; the gradient passes as it is. Collective."""
    return _SumOut.apply(x, group)


def gather_out(x: Tensor, cut: Cut) -> Tensor:
    """The ranks' parts put together; a part's gradient is its part of the gradient. Collective.

    That is right because every rank goes on to compute the same loss from the whole.
    """
    return _GatherOut.apply(x, cut)


class _CopyIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return _sum(grad, ctx.group, "tensor-parallel backward"), None


class _SumOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return _sum(x, group, "tensor-parallel forward")

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _GatherOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cut):
        ctx.cut = cut
        return join(x, cut, "the outputs")

    @staticmethod
    def backward(ctx, grad):
        return take(grad, ctx.cut), None


def _sum(x: Tensor, group: comm.Group, name: str) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    comm.all_reduce(total.view(-1), op="sum", group=group, name=name)
    return total


# --- the layers ----------------------------------------------------------------------------------


class ColumnParallelLinear(nn.Module):
    """A linear layer cut by outputs: whole input, this rank's part of the output.

    It takes its part of the weight [outputs, inputs] and bias [outputs] of `linear`. `blocks`: how
    many equal blocks the outputs consist of (see `Cut`). With `gather`, forward returns the whole
    output on every rank.
    """

    def __init__(self, linear: nn.Linear, group: comm.Group, blocks: int = 1, gather: bool = False):
        super().__init__()
        self.group, self.gather = group, gather
        self.cut = Cut(group, 0, linear.out_features, blocks)
        self.weight = _part(linear.weight, self.cut)
        self.bias = None if linear.bias is None else _part(linear.bias, self.cut)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., inputs] -> [..., about outputs / M], or [..., outputs] with `gather`."""
        y = F.linear(copy_in(x, self.group), self.weight, self.bias)
        if self.gather:
            y = gather_out(y, Cut(self.group, -1, self.cut.length, self.cut.blocks))
        return y


class RowParallelLinear(nn.Module):
    """A linear layer cut by inputs: this rank's part of the input, whole output on every rank.

    It takes its part of the weight [outputs, inputs] of `linear`. The bias [outputs] stays whole
    and is added after the sum: before it, it would count once for every rank.
    """

    def __init__(self, linear: nn.Linear, group: comm.Group):
        super().__init__()
        self.group = group
        self.weight = _part(linear.weight, Cut(group, 1, linear.in_features))
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x [..., about inputs / M] -> [..., outputs]."""
        y = sum_out(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias


class VocabularyParallelEmbedding(nn.Module):
    """A table of vectors cut by tokens: each rank looks up its own, zero stands for the others'."""

    def __init__(self, embedding: nn.Embedding, group: comm.Group):
        super().__init__()
        self.group = group
        self.cut = Cut(group, 0, embedding.num_embeddings)
        self.weight = _part(embedding.weight, self.cut)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens (int64 [...]) -> [..., width]."""
        start, end = self.cut.bounds()
        foreign = (tokens < start) | (tokens >= end)
        found = F.embedding((tokens - start).masked_fill(foreign, 0), self.weight)
        return sum_out(found.masked_fill(foreign[..., None], 0.0), self.group)


class ParallelAttention(nn.Module):
    """Causal self-attention of which each rank has heads / M heads (see `models.Attention`)."""

    def __init__(self, attention: Attention, group: comm.Group):
        super().__init__()
        self.group, self.dropout = group, attention.dropout
        self.heads = attention.heads // comm.world_size(group)
        self.head_width = attention.proj.in_features // attention.heads
        self.qkv = ColumnParallelLinear(attention.qkv, group, blocks=3)
        self.proj = RowParallelLinear(attention.proj, group)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, time, width] -> the same shape."""
        batch, time, _ = x.shape
        heads = self.qkv(x).view(batch, time, 3, self.heads, self.head_width)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each [batch, heads / M, time, head width]
        if self.training and self.dropout:
            with own_random(self.group, x.device):
                out = F.scaled_dot_product_attention(
                    q, k, v, dropout_p=self.dropout, is_causal=True
                )
        else:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(batch, time, -1))


@contextlib.contextmanager
def own_random(group: comm.Group, device: torch.device) -> Iterator[None]:
    """Random numbers that differ over the ranks of the group, which else draw the same ones.

    Replicated parts must drop the same elements on every rank; heads are different heads, and must
    not. The common stream moves on by one number, the seed, whatever is drawn inside.
    """
    seed = int(torch.randint(1 << 40, ())) + comm.rank(group)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


# --- helpers -------------------------------------------------------------------------------------


def _part(p: nn.Parameter, cut: Cut) -> nn.Parameter:
    mine = nn.Parameter(take(p.detach(), cut), requires_grad=p.requires_grad)
    mine.tp_cut = cut
    return mine


def _check(model: GPT, ranks: int) -> None:
    if not isinstance(model, GPT):
        raise TypeError(
            f"parallelize cuts zero.models.GPT, not {type(model).__name__}; put the layers of "
            f"zero.tensor_parallel into your own model instead"
        )
    for name, p in model.named_parameters():
        if getattr(p, "_zero_owner", None) is not None or hasattr(p, "tp_cut"):
            raise ValueError(
                f"{name} is sharded or cut already; call parallelize before zero.shard"
            )
        if p.is_meta:
            raise ValueError(f"{name} is on the meta device; only weights with memory can be cut")
    heads = model.blocks[0].attention.heads if model.blocks else ranks
    if heads % ranks:
        raise ValueError(
            f"{heads} heads of attention cannot be divided among {ranks} tensor-parallel ranks; "
            f"choose a number of ranks that divides {heads}"
        )
    if model.vocab_size < ranks:
        raise ValueError(f"{ranks} ranks cannot share a vocabulary of {model.vocab_size} tokens")


def _start_equal(model: GPT, group: comm.Group) -> None:
    for p in model.parameters():
        flat = p.detach().reshape(-1).clone()
        comm.broadcast(flat, group=group, name="start weights of a replica")
        p.data.copy_(flat.view(p.shape))
    seed = torch.randint(1 << 40, (1,)).to(comm.device())
    comm.broadcast(seed, group=group, name="random seed of a replica")
    torch.manual_seed(int(seed))
