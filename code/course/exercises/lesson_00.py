"""Lesson 00: what training costs, and what plain data parallelism repeats on every rank."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=0,
    topic="memory_wall",
    title="The memory wall",
    minutes=90,
    exercises=(
        Exercise(
            "zero.formulas.paper_parts",
            minutes=5,
            difficulty=1,
            hints=(
                "How many bytes does one parameter take in 16 bits, how many in 32? And how many "
                "numbers does Adam keep for it, besides the parameter and its gradient?",
                "A dict with four keys. Each value is the number of parameters, times the bytes "
                "of one number, times how many such numbers there are.",
                """
                    return {
                        "parameters": 2 * parameters,      # 16 bits
                        "gradients": ...,                  # 16 bits
                        "master": ...,                     # 32 bits
                        "moments": ...,                    # two numbers of 32 bits
                    }
                """,
            ),
        ),
        Exercise(
            "zero.exchange.add_in_rank_order",
            minutes=20,
            difficulty=2,
            hints=(
                "If out is the memory of rows[1], when is the last moment at which you may read "
                "rows[1]? And how do you fill a tensor that somebody else holds?",
                "Make a new tensor, total, from the first row: a copy, in fp32 where the rows have "
                "16 bits. Take in the other rows one by one, in their order. Divide at the end, "
                "and only then copy the result into out.",
                """
                    wide = torch.float32 if rows[0].element_size() == 2 else rows[0].dtype
                    total = rows[0].to(wide, copy=True)
                    for row in rows[1:]:
                        total = (total and row.to(wide), added; for "max" torch.maximum)
                    (for "mean": divide by len(rows))
                    out.copy_(total)
                """,
            ),
        ),
        Exercise(
            "zero.ddp.Ddp.finish_gradients",
            minutes=15,
            difficulty=2,
            hints=(
                "Which ranks must take part in the all-reduce, and what happens to a gradient "
                "that one rank has and another has not?",
                "For every bucket, three steps: complete the gradients, average bucket.grad over "
                "self.group, and put the result into bucket.owned_grad in the dtype of "
                "bucket.master.",
                """
                    for bucket in self.buckets:
                        (complete its gradients)
                        comm.all_reduce((what?), group=self.group)
                        bucket.owned_grad = bucket.grad.to((which dtype?))

                The default op of comm.all_reduce is "mean". x.to(dtype) is x itself if x has that
                dtype already.
                """,
            ),
        ),
    ),
)
