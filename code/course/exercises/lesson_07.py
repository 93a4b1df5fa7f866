"""Lesson 07: norms, clipping and overflow when every rank holds only its shard."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=7,
    topic="clipping",
    title="Clipping across shards",
    minutes=75,
    exercises=(
        Exercise(
            "zero.clip.shard_power",
            minutes=10,
            difficulty=1,
            hints=(
                "Two ranks hold the shards [3] and [4] of one gradient. Which number must each "
                "report, so that the norm 5 can be computed from the two numbers alone?",
                "Not the norm, but what stands under the root: the sum of |g|^p over all elements "
                "of all slices. For the infinity norm it is the largest |g|. A rank without any "
                "element reports 0.0. Add 16-bit numbers in fp32.",
                """
                    powers = []
                    for grad in grads:
                        if grad.numel():
                            wide = grad.float().abs()      # fp64 stays fp64: grad.double()
                            powers.append(...)             # largest, or (wide ** p).sum(), .item()
                    for p = inf: the largest of them; else their sum; 0.0 if there are none

                Python's max() loses NaN: max(1.0, nan) is 1.0. zero.clip has max_keeping_nan.
                """,
            ),
        ),
        Exercise(
            "zero.clip.combine_powers",
            minutes=5,
            difficulty=1,
            hints=(
                "The ranks report 9 and 16. How does 5 come out? And what is the same step if "
                "they report the largest elements, 3 and 4?",
                "Add, then take the p-th root. For infinity take the largest, and no root.",
                """
                    if norm_type == math.inf:
                        return max_keeping_nan(powers)
                    return sum(powers) ** (one over p)
                """,
            ),
        ),
        Exercise(
            "zero.clip.scale_down",
            minutes=10,
            difficulty=2,
            hints=(
                "If every rank scaled its shard to max_norm, what would the norm of the whole be? "
                "And who sees your result if you write grad = grad * factor?",
                "One factor for all ranks, from the whole gradient's norm. Scale in place. Do "
                "nothing if the norm is small enough already, or if it is inf or NaN.",
                """
                    factor = max_norm / (norm + 1e-6)
                    if (norm is finite) and (factor is below 1):
                        for grad in grads:
                            (in place: the method with an underscore)
                """,
            ),
        ),
        Exercise(
            "zero.precision.LossScale.update",
            minutes=10,
            difficulty=1,
            hints=(
                "Which two numbers change after an overflow? After a good step, when do both?",
                "Overflow: halve the scale, but keep it at 1.0 at least, and count good steps from "
                "zero again. Good step: count it; when the count is growth_interval, double the "
                "scale and count from zero.",
                """
                    if overflow:
                        self.scale = max(..., 1.0)
                        self.good_steps = 0
                    else:
                        self.good_steps += 1
                        if (that many):
                            (double, and from zero)
                """,
            ),
        ),
        Exercise(
            "zero.consensus.agree_finite",
            minutes=10,
            difficulty=2,
            hints=(
                "Rank 1 has inf in its shard, the others have not. What happens in the all-gather "
                "of the parameters if rank 1 alone skips the step?",
                "Look at your own slices, then tell the others: comm.any_rank(flag, group=group) "
                "is True on every rank if it is True on one. Every rank must call it, whatever it "
                "has found.",
                """
                    bad = False
                    for s in slices:
                        if s.param.grad is not None and not all_finite(s.param.grad):
                            bad = True
                    for group in groups:
                        bad = comm.any_rank(bad, group=group)
                    (the question was: are all finite?)
                """,
            ),
        ),
    ),
)
