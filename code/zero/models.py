"""Two small models to train: a GPT for text and an MLP for rows of numbers.

The GPT is the usual decoder (Radford et al., "Language Models are Unsupervised Multitask
Learners", 2019): token and position embeddings, blocks that add attention and then a feed-forward
network to the residual stream, each behind its own LayerNorm, and a linear head.

Every module that owns parameters sets their start values in `reset_parameters()`, and in nothing
else. So a model can be built on the meta device, where it costs no memory, and each module can be
given storage and start values later, alone, on whichever rank needs it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INIT_STD = 0.02


class Linear(nn.Linear):
    """A linear layer that starts with weights from N(0, std^2) and a bias of zero."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, std: float = INIT_STD):
        self.std = std  # before the base class, which calls reset_parameters
        super().__init__(inputs, outputs, bias=bias)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Embedding(nn.Embedding):
    """A table of vectors that starts from N(0, 0.02^2)."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=INIT_STD)


class Attention(nn.Module):
    """Causal self-attention with `heads` heads, each `width / heads` wide.

    `qkv` makes queries, keys and values in one product: its outputs are the queries of all heads,
    then all keys, then all values. `proj` mixes the heads' results; its start values are scaled by
    `proj_std`.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, proj_std: float = INIT_STD):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not divisible by {heads} heads")
        self.heads = heads
        self.dropout = dropout
        self.qkv = Linear(width, 3 * width)
        self.proj = Linear(width, width, std=proj_std)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, time, width] -> the same shape."""
        batch, time, width = x.shape
        heads = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each [batch, heads, time, width / heads]
        dropout = self.dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(batch, time, width))


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them; the inner one is four times as wide."""

    def __init__(self, width: int, dropout: float = 0.0, proj_std: float = INIT_STD):
        super().__init__()
        self.dropout = dropout
        self.up = Linear(width, 4 * width)
        self.down = Linear(4 * width, width, std=proj_std)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, time, width] -> the same shape."""
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training)


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, proj_std: float = INIT_STD):
        super().__init__()
        self.dropout = dropout
        self.ln_1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout, proj_std)
        self.ln_2 = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, dropout, proj_std)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, time, width] -> the same shape."""
        x = x + F.dropout(self.attention(self.ln_1(x)), self.dropout, self.training)
        return x + self.feed_forward(self.ln_2(x))


class GPT(nn.Module):
    """A decoder-only transformer over a vocabulary of `vocab_size` tokens.

    `block_size` is the longest sequence that it reads. With `tied` the head uses the token
    embedding's weight: one parameter under two names, counted once.
    """

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        layers: int,
        heads: int,
        width: int,
        dropout: float = 0.0,
        tied: bool = False,
    ):
        super().__init__()
        self.vocab_size = vocab_size
        self.block_size = block_size
        self.dropout = dropout
        # 2 * layers branches add to the residual stream: scaled down, their sum keeps its variance.
        proj_std = INIT_STD * (2 * layers) ** -0.5
        self.wte = Embedding(vocab_size, width)
        self.wpe = Embedding(block_size, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, proj_std) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = Linear(width, vocab_size, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Logits [batch, time, vocab_size] for tokens x (int64 [batch, time]).

        With targets y (int64 [batch, time]): their mean cross-entropy, in nats a token.
        """
        time = x.shape[1]
        if time > self.block_size:
            raise ValueError(f"a sequence of {time} tokens, but block_size is {self.block_size}")
        h = self.wte(x) + self.wpe(torch.arange(time, device=x.device))
        h = F.dropout(h, self.dropout, self.training)
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.ln_f(h))
        if y is None:
            return logits
        # In 16 bits a sum over the vocabulary would lose the loss's digits.
        return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())

    @torch.no_grad()
    def generate(
        self,
        x: Tensor,
        count: int,
        *,
        temperature: float = 0.8,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Continue x (int64 [batch, time], time >= 1) by `count` sampled tokens.

        Returns [batch, time + count]. A temperature of 0 takes the most likely token each time. If
        the parameters are sharded, all ranks call this together, with equal generators.
        """
        was_training = self.training
        self.eval()
        for _ in range(count):
            logits = self(x[:, -self.block_size :])[:, -1].float()
            if temperature == 0:
                token = logits.argmax(-1, keepdim=True)
            else:
                odds = F.softmax(logits / temperature, dim=-1)
                token = torch.multinomial(odds, 1, generator=generator)
            x = torch.cat((x, token), dim=1)
        self.train(was_training)
        return x


class MLP(nn.Module):
    """Three linear layers with an activation between them.

    `sizes` are the widths (inputs, first hidden, second hidden, outputs).
    """

    def __init__(
        self, sizes: tuple[int, int, int, int] = (64, 256, 256, 64), activation: str = "tanh"
    ):
        super().__init__()
        if len(sizes) != 4:
            raise ValueError(f"sizes {sizes}: three layers need four widths")
        if activation not in ("tanh", "gelu"):
            raise ValueError(f"activation {activation!r}: choose 'tanh' or 'gelu'")
        self.activation = torch.tanh if activation == "tanh" else F.gelu
        self.fc1 = nn.Linear(sizes[0], sizes[1])
        self.fc2 = nn.Linear(sizes[1], sizes[2])
        self.fc3 = nn.Linear(sizes[2], sizes[3])

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Outputs [batch, outputs] for x [batch, inputs]; with targets y: mean squared error."""
        h = self.activation(self.fc1(x))
        out = self.fc3(self.activation(self.fc2(h)))
        return out if y is None else F.mse_loss(out.float(), y.float())


def gpt_demo(vocab_size: int, block_size: int = 64, **options) -> GPT:
    """About 0.8 million parameters: twenty steps on four ranks take seconds on a laptop."""
    return GPT(vocab_size, block_size, layers=4, heads=4, width=128, **options)


def gpt_3m(vocab_size: int, block_size: int = 128, **options) -> GPT:
    """About 3 million parameters."""
    return GPT(vocab_size, block_size, layers=4, heads=8, width=256, **options)


def gpt_30m(vocab_size: int, block_size: int = 128, **options) -> GPT:
    """About 30 million parameters."""
    return GPT(vocab_size, block_size, layers=10, heads=8, width=512, **options)


def gpt_126m(vocab_size: int, block_size: int = 128, **options) -> GPT:
    """About 126 million parameters: 2 GB of model states in fp32."""
    return GPT(vocab_size, block_size, layers=10, heads=16, width=1024, **options)
