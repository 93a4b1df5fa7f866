"""Stage 0, plain data parallelism: the baseline.

Every rank holds everything: all parameters, all gradients, all optimizer states. Each computes
the gradients of its own part of the batch; an all-reduce averages them; then every rank makes the
same update. Nothing is divided but the data, so N ranks need N times the memory of one.
"""

from __future__ import annotations

from torch import nn

from . import comm
from .bucket import Bucket
from .groups import by_dtype
from .optimizer import ZeroOptimizer


class Ddp(ZeroOptimizer):
    """Replicas with averaged gradients (Li et al. 2020, "PyTorch Distributed").

    Memory per rank, Ψ parameters in fp32 with Adam: 4Ψ + 4Ψ + 8Ψ bytes, whatever N is.
    Sends 2Ψ (N-1)/N elements a step.
    """

    stage = 0
    sharded = False

    def make_buckets(self) -> list[Bucket]:
        """One bucket for each dtype; every rank owns all of it."""
        how = {"sharded": False, "offload": self.offload}
        return [Bucket(n, self.group, self.precision, **how) for n in by_dtype(self.names)]

    def on_gradient(self, p: nn.Parameter) -> None:
        """Keep the gradient in the flat buffer; it waits there for `step`."""
        self.bucket_of[p].keep_gradient(p)

    def finish_gradients(self) -> None:
        """Leave in every bucket's `owned_grad` its gradients averaged over the ranks. Collective.

        For each bucket, `bucket.complete_gradients()` makes the flat `bucket.grad` whole: where
        this rank has no gradient, it stands at zero. An all-reduce over `self.group` averages it
        in place. `owned_grad` has the dtype of `bucket.master`: in fp32 training it is
        `bucket.grad` itself, not a copy; 16-bit gradients are converted.
        """
        for bucket in self.buckets:
            bucket.complete_gradients()
            name = f"gradients of {bucket.names[0]}.., step {self.steps + 1}"
            comm.all_reduce(bucket.grad, group=self.group, name=name)
            bucket.owned_grad = bucket.grad.to(bucket.master.dtype)

    def publish(self) -> None:
        """Every rank has made the same update; only a 16-bit model must be refreshed."""
        for bucket in self.buckets:
            bucket.refresh_shard()
