"""Lesson 08: a checkpoint in shards, complete or not there at all, for any number of ranks."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=8,
    topic="checkpoint",
    title="Checkpoint",
    minutes=75,
    exercises=(
        Exercise(
            "zero.manifest.shard_entry",
            minutes=10,
            difficulty=1,
            hints=(
                "Somebody resumes on another number of ranks, and has only this entry. What must "
                "it say of each piece, so that its elements can be found and put in their place?",
                "A dict of four: file, bytes, sha256, slices. slices has one dict for each piece, "
                "under the parameter's name: offset, length, the tensors' dtypes as text, and the "
                "numbers as they are.",
                """
                    slices = {}
                    for piece in pieces:
                        slices[piece.name] = {
                            "offset": piece.offset,
                            "length": ...,
                            "tensors": {kind: dtype_name(t.dtype) for kind, t in ...},
                            "numbers": ...,
                        }
                    return {"file": file, "bytes": size, "sha256": sha256, "slices": slices}
                """,
            ),
        ),
        Exercise(
            "zero.commit.commit",
            minutes=10,
            difficulty=2,
            hints=(
                "The power fails right after the rename. Which names may the disk have forgotten? "
                "And if it fails right before?",
                "Three calls. First the names inside the folder must be on the disk, then the "
                "folder gets its name, then that name must be on the disk: it stands in the folder "
                "above.",
                """
                    disk.sync(temporary)
                    (rename temporary to final)
                    disk.sync(the folder in which final stands)
                """,
            ),
        ),
        Exercise(
            "zero.commit.point_to",
            minutes=10,
            difficulty=2,
            hints=(
                "If you open root/latest for writing, what is in it between that moment and the "
                "end of the write?",
                "Write the line to another file in the same folder, say .latest, and rename that "
                "to latest. It may be left over from a save that died: remove it first.",
                """
                    temporary = root / f".{LATEST}"
                    temporary.unlink(missing_ok=True)
                    disk.write(temporary, (the name and a line end, as bytes))
                    (rename; sync the folder)
                """,
            ),
        ),
        Exercise(
            "zero.reshard.copies",
            minutes=20,
            difficulty=3,
            hints=(
                "You want elements [3, 9). A saved slice holds [0, 5). Which elements do they "
                "share, where do those begin in the slice, and where in what you want?",
                "The overlap begins at the larger of the two beginnings and ends at the smaller of "
                "the two ends. If it is not empty, subtract the slice's beginning for `start`, and "
                "the wanted beginning for `target`.",
                """
                    plan = []
                    for source, (begin, count) in enumerate(saved):
                        first = max(begin, offset)
                        last = min(begin + count, ...)
                        if first < last:
                            plan.append(Copy(source, first - ..., first - ..., last - first))
                    return plan
                """,
            ),
        ),
    ),
)
