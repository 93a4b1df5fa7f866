"""The course: exercises in notebook cells, a grader, and the builder of the notebooks.

How to write a lesson
---------------------
A lesson ``NN_topic`` is four things, and nothing else has to be registered:

1. ``code/course/exercises/lesson_NN.py`` declares ``LESSON = Lesson(...)``: title, minutes, and its
   exercises in order. An exercise is a function or method of ``zero``, named by its path, with
   minutes, difficulty (1 to 3) and three hints: a question, the idea, almost the code. The
   package's source is the solution; the stub (decorators, signature, docstring) is cut out of it.
   So the docstring is the task: it must say everything that the checks ask for. Methods with
   ``super()`` without arguments cannot be exercises.

2. ``lessons/source/NN_topic.md``, in jupytext's Markdown. Cells are ```` ```python ```` fences;
   text is cut into cells at two empty lines. It begins with ``# NN Title`` and says "60 minutes"
   as declared; the first code cell is ``%load_ext course``. An exercise is an empty fence, before
   which the builder writes its number, path, minutes and difficulty::

       ```{exercise} zero.flat.flatten_params
       ```

   Unsolved, every cell must run: until an exercise is solved, our code is used. A function has its
   name in the notebook after its exercise cell. Figures come from ``course.style`` and are the last
   line of their cell; ``style.static_and_widget(draw, n=(1, 8, 1, 4))`` adds sliders. Print nothing
   that differs from run to run (times, paths, losses on the built-in text), or tag the cell
   (```` ```python tags=["nbval-ignore-output"] ````); ``raises-exception`` lets a cell fail.

3. ``tests/lessons/test_NN_topic.py`` holds the checks, plain test functions, from simple to hard::

       @exercise("zero.flat.flatten_params")
       def test_detached():
           "The result has no gradient history"            # the learner reads this line
           require(not flatten_params(small()).requires_grad, "It requires grad.", "not-detached")

   Only the piece of that exercise is the learner's, all else is ours. Call it inside the check, not
   in a fixture. ``course.checks`` compares and names known mistakes, ``course.training`` trains on
   one process (the oracle) and on ranks (``on_ranks``, ``train_on_ranks``). The first failure ends
   the grading, so order matters. Return tensors from ranks and compare them in the check.

4. ``tests/lessons/wrong/NN/<exercise path>/<slug>.py``: at least six wrong answers an exercise,
   each a whole definition as a learner would write it. Its docstring says what is wrong, and::

       check: test_detached           the check that must be the first to fail
       mistake: not-detached          the mistake that it must recognise (may be empty)
       says: requires grad            words that must be in the report (may be left out)

   Right answers that are unlike ours, and were once rejected, lie likewise in ``right/NN/``.

Then::

    python -m course build 01_flat                          writes lessons/ and solutions/
    python -m course build --check                          fails if they are out of date
    pytest tests/lessons/test_01_flat.py --solutions        the checks, on our code
    pytest tests/lessons/test_wrong_answers.py -k flatten   what they reject
    python -m course check flatten_params                   what a learner sees

How it works: ``source`` cuts stubs, ``registry`` lists lessons, ``pieces`` keeps ``mine/``,
``overlay`` puts a learner's piece into its module, here and on every rank, ``plugin`` is the pytest
side of grading, ``server`` the warm process that forks for each grading, ``grading`` asks it,
``report`` is what a learner reads, ``notebook`` has the cells, ``build`` makes the notebooks.
"""

from __future__ import annotations

from course.commands import check, doctor, hint, progress, reset, start
from course.mine import use_mine

__all__ = ["check", "doctor", "hint", "progress", "reset", "start", "use_mine"]


def load_ipython_extension(shell) -> None:
    """``%load_ext course`` in a notebook."""
    from course import notebook

    notebook.load(shell)
