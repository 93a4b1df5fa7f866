"""Grades lesson 05; the checks stand in `zero3_checks`, a file an exercise."""

from zero3_checks.before import *  # noqa: F403
from zero3_checks.closing import *  # noqa: F403
from zero3_checks.gathering import *  # noqa: F403
from zero3_checks.releasing import *  # noqa: F403
