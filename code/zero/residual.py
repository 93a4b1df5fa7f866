"""Residual states predicted: the activations that a GPT keeps from forward to backward, and what
dividing them sends (ZeRO-R, sections 4 and 6 of the paper). Plain arithmetic, no torch.

Exact bytes of `models.GPT` on one rank, without dropout, as PyTorch's CPU kernels save them;
tests hold the measured bytes against them. Notation: B sequences of T tokens in the rank's batch,
C the width, M tensor-parallel ranks, `size` bytes a value (4 in fp32, 2 in 16 bits).

`formulas.activation_values` is the paper's estimate, 12 BTC a layer. Here it is 16: 12 lie between
the column- and the row-parallel layers and are divided by M, 4 are replicated.
"""

from __future__ import annotations

MODES = ("none", "checkpoint", "partition", "offload")

INDEX = 8  # bytes of a token's number
FP32 = 4


def block(batch: int, time: int, width: int, heads: int, tp: int = 1, size: int = 4) -> int:
    """Bytes that one block keeps without checkpointing.

    Replicated: its input, the sum after attention, and both LayerNorms' outputs; with the
    LayerNorms' means and deviations. Divided: queries, keys, values and the heads' results, and
    before and after GELU four times the width each; with one number a head for attention.
    """
    tokens = batch * time
    replicated = 4 * tokens * width * size + 4 * tokens * size
    divided = 12 * tokens * width * size + tokens * heads * FP32
    return replicated + divided // tp


def around(batch: int, time: int, width: int, vocabulary: int, cut: bool, size: int = 4) -> int:
    """Bytes that the model keeps outside of its blocks.

    Tokens, targets and positions, the last LayerNorm with its input, the probabilities, the loss.
    A cut embedding (`cut`) also keeps which tokens are its own.
    """
    tokens = batch * time
    numbers = 2 * tokens * INDEX + time * INDEX + (tokens * (INDEX + 1) if cut else 0)
    norm = 2 * tokens * width * size + 2 * tokens * size
    return numbers + norm + tokens * vocabulary * FP32 + 2 * FP32


def checkpoint(batch: int, time: int, width: int, parts: int = 1, size: int = 4) -> int:
    """Bytes that a rank keeps of one block's input, alone or as one of `parts` ranks (P_a)."""
    return -(-batch * time * width // parts) * size


def activations(
    mode: str,
    layers: int,
    batch: int,
    time: int,
    width: int,
    heads: int,
    vocabulary: int,
    tp: int = 1,
    *,
    cut: bool = True,
    size: int = 4,
) -> int:
    """Bytes of all activations in device memory after a forward pass.

    mode: "none" keeps everything; "checkpoint" the blocks' inputs; "partition" 1/M of them;
    "offload" nothing of the blocks. `cut` says whether the model was cut (also over one rank).
    """
    if mode not in MODES:
        raise ValueError(f"mode {mode!r} is unknown; choose one of {', '.join(MODES)}")
    of_a_block = {
        "none": block(batch, time, width, heads, tp, size),
        "checkpoint": checkpoint(batch, time, width, 1, size),
        "partition": checkpoint(batch, time, width, tp, size),
        "offload": 0,
    }[mode]
    return layers * of_a_block + around(batch, time, width, vocabulary, cut, size)


def partition_sent(layers: int, batch: int, time: int, width: int, tp: int, size: int = 4) -> int:
    """Bytes that a rank sends in a step so that the blocks' inputs are whole again."""
    return layers * (tp - 1) * checkpoint(batch, time, width, tp, size)


def tensor_parallel_sent(
    mode: str,
    layers: int,
    batch: int,
    time: int,
    width: int,
    vocabulary: int,
    tp: int,
    size: int = 4,
) -> int:
    """Bytes that a rank sends in a step for tensor parallelism itself. (M must divide BTC.)

    A block sums two times BTC values in each pass: forward, backward, and again in recomputation.
    Embedding and head sum once each, and the head's outputs are gathered.
    """
    passes = 2 if mode == "none" else 3
    a_sum = 2 * batch * time * width * size // tp * (tp - 1)
    outputs = (tp - 1) * batch * time * -(-vocabulary // tp) * size
    return (layers * passes * 2 + 2) * a_sum + outputs
