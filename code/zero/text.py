"""Text to train on: load it, turn it into numbers, cut it into batches.

Nothing is downloaded. The built-in text is the language reference that ships with Python
(`pydoc_data.topics`, what `help("for")` prints): about half a million characters. Its length and
its characters differ a little between Python versions. Some of its topics repeat parts of others,
so a validation loss on it is a little better than on text that is wholly unseen.

The tokens are single characters: a vocabulary of about a hundred, and nothing to train first.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

MIN_CHARACTERS = 1000


class TextError(ValueError):
    """A text that cannot be used. The message is one line that names it and says what to do."""


def load(path: str | Path | None = None) -> str:
    """The text in the file `path` (UTF-8), or the built-in text.

    Raises TextError if there is no such file, or it is empty, not UTF-8 or shorter than 1000
    characters.
    """
    if path is None:
        return _built_in()
    try:
        # The -sig codec drops the mark that some editors write at the start of a file.
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise TextError(f"text file {path} does not exist; check the path") from None
    except IsADirectoryError:
        raise TextError(f"{path} is a folder; name a text file in it") from None
    except UnicodeDecodeError as error:
        raise TextError(
            f"text file {path} is not UTF-8 (at byte {error.start}); save it as UTF-8 first"
        ) from None
    except OSError as error:
        raise TextError(f"text file {path} cannot be read: {error.strerror}") from None
    if not text:
        raise TextError(f"text file {path} is empty; name a file with text in it")
    if len(text) < MIN_CHARACTERS:
        raise TextError(
            f"text file {path} is too short: {len(text)} characters,"
            f" at least {MIN_CHARACTERS} are needed"
        )
    return text


def _built_in() -> str:
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise TextError(
            "this Python ships without its reference text; name a file with --text FILE"
        ) from None
    return "\n\n".join(topics[key] for key in sorted(topics))


class Tokenizer:
    """One token a character. The vocabulary is the set of characters of `text`, sorted.

    `Tokenizer(tokenizer.characters)` is the same tokenizer again: to save one is to save a string.
    """

    def __init__(self, text: str):
        self.characters = "".join(sorted(set(text)))
        self._ids = {character: i for i, character in enumerate(self.characters)}

    @property
    def vocab_size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Tensor:
        """int64 [len(text)]. Raises TextError at a character that the vocabulary lacks: one that
        was never trained has no meaning to a model, so it is not replaced by another in silence."""
        try:
            return torch.tensor([self._ids[c] for c in text], dtype=torch.int64)
        except KeyError as error:
            character = error.args[0]
            raise TextError(
                f"character {character!r} at position {text.index(character)} is not among the"
                f" {self.vocab_size} characters of the training text; remove or replace it"
            ) from None

    def decode(self, tokens: Tensor) -> str:
        """The text of a tensor of tokens, whatever its shape."""
        return "".join(self.characters[i] for i in tokens.flatten().tolist())


def split(tokens: Tensor, held_out: float = 0.1) -> tuple[Tensor, Tensor]:
    """(training, validation): the last tenth of the tokens is held out."""
    cut = len(tokens) - math.ceil(len(tokens) * held_out)
    return tokens[:cut], tokens[cut:]


class Batches:
    """Batches for one rank, as a function of the step alone: `batches(step) -> (x, y)`.

    x and y are int64 [batch, block]; y is x one token later. The tokens are cut into windows of
    `block`, shuffled anew each epoch and shifted by a random offset, both drawn from `seed` and the
    epoch. Step by step the ranks take `batch * world_size` windows off that list, rank 0 the first
    `batch` of them. It follows that

    * no window is used twice in an epoch, by the same rank or by two;
    * one process with a batch of `world_size * batch` sees the ranks' batches joined in rank order;
    * to resume, only the step number is needed.

    What is left at the end of an epoch and does not fill a step is skipped. Needs no communication:
    each rank draws the same list and takes its part.
    """

    def __init__(
        self,
        tokens: Tensor,
        batch: int,
        block: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
    ):
        for name, value in (("batch", batch), ("block", block), ("world_size", world_size)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is outside a world of {world_size}")
        # The last window also needs the token behind it, and room for the largest offset.
        windows = (len(tokens) - block) // block
        self.steps_per_epoch = max(windows, 0) // (batch * world_size)
        if self.steps_per_epoch == 0:
            raise TextError(
                f"{len(tokens)} tokens are too few for one step of {world_size} x {batch} windows"
                f" of {block}: at least {(batch * world_size + 1) * block} are needed;"
                " take a longer text or a smaller batch"
            )
        self.tokens, self.batch, self.block = tokens, batch, block
        self.rank, self.world_size, self.seed = rank, world_size, seed
        self._windows = windows
        self._epoch: tuple[int, Tensor] | None = None  # the list drawn last, kept for speed

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """This rank's inputs and targets of a step (0, 1, 2, ...), int64 [batch, block] each."""
        epoch, position = divmod(step, self.steps_per_epoch)
        first = (position * self.world_size + self.rank) * self.batch
        starts = self._starts(epoch)[first : first + self.batch]
        windows = self.tokens[starts[:, None] + torch.arange(self.block + 1)]
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    def _starts(self, epoch: int) -> Tensor:
        """Where each window of an epoch starts, in the order of use: int64 [windows]."""
        if self._epoch is None or self._epoch[0] != epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            order = torch.randperm(self._windows, generator=generator)
            offset = torch.randint(self.block, (), generator=generator)
            self._epoch = (epoch, order * self.block + offset)
        return self._epoch[1]
