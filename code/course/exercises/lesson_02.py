"""Lesson 02: optimizer states sharded over the ranks."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=2,
    topic="zero1",
    title="ZeRO-1",
    minutes=100,
    exercises=(
        Exercise(
            "zero.adam.adamw_update",
            minutes=15,
            difficulty=1,
            hints=(
                "Three tensors must change in place. Which operations of PyTorch write into the "
                "tensor that they are called on, and what does `m = beta1 * m + ...` do instead?",
                "Six lines of the docstring, six lines of code, in that order. In-place methods "
                "end with an underscore: x.mul_(2), x.add_(y, alpha=3), x.addcmul_(y, z, value=3), "
                "x.addcdiv_(y, z, value=3). m_hat and v_hat may be new tensors.",
                """
                    beta1, beta2 = betas
                    param.mul_(1 - lr * weight_decay)
                    exp_avg.mul_(beta1).add_(grad, alpha=(how much of the new one?))
                    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=(how much of the new one?))
                    m_hat = exp_avg / (1 - beta1**step)
                    v_hat = ...
                    param.sub_(...)
                """,
            ),
        ),
        Exercise(
            "zero.bucket.Bucket.make_slices",
            minutes=15,
            difficulty=2,
            hints=(
                "Rank 1's master has 4 elements, and b begins at the third of them. Which slice of "
                "the master belongs to b, and what does slicing a tensor copy?",
                "For every part in self.owned_parts(): its elements are those of self.master from "
                "offset on, as many as end - start. nn.Parameter(view) shares the memory of the "
                "view. The model's parameter stands in self.params where its name stands in "
                "self.names.",
                """
                    whole = dict(zip(self.names, self.params))
                    made = []
                    for part in self.owned_parts():
                        elements = self.master[part.offset : (where does it end?)]
                        made.append(ParamSlice(part.name, ..., nn.Parameter(elements), ...))
                    return made
                """,
            ),
        ),
        Exercise(
            "zero.stage1.Zero1.finish_gradients",
            minutes=15,
            difficulty=2,
            hints=(
                "After the reduce-scatter, who still needs this rank's own, unaveraged gradients "
                "of its range? So where could the average be written without new memory?",
                "For every bucket: complete the gradients; choose where the average goes (the "
                "rank's own range of bucket.grad, or a new fp32 tensor of that length if it has "
                "a master); call self.reduce_bucket(bucket, out) and keep what it returns in "
                "bucket.owned_grad. All ranks must do this for all buckets, in the same order.",
                """
                    for bucket in self.buckets:
                        bucket.complete_gradients()
                        out = bucket.owned(bucket.grad)
                        if bucket.has_master:
                            out = torch.empty_like(out, dtype=(which?))
                        bucket.owned_grad = ...
                """,
            ),
        ),
        Exercise(
            "zero.stage1.Zero1.publish",
            minutes=10,
            difficulty=2,
            hints=(
                "Which part of bucket.flat is new on this rank, and who has the rest? In 16-bit "
                "training, is even this rank's part new?",
                "Two steps for every bucket: refresh the shard, then all-gather bucket.flat. "
                "Without async_op the call returns when all ranges have come. With it, keep the "
                "Works and wait for all of them at the end.",
                """
                    for bucket in self.buckets:
                        bucket.refresh_shard()
                        comm.all_gather((which tensor?), group=self.group)
                """,
            ),
        ),
    ),
)
