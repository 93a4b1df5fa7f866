"""Grades lesson 02; the checks stand in `zero1_checks`, a file an exercise."""

from zero1_checks.adam import *  # noqa: F403
from zero1_checks.publish import *  # noqa: F403
from zero1_checks.reduce import *  # noqa: F403
from zero1_checks.slices import *  # noqa: F403
