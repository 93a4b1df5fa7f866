"""Grades lesson 06; the checks stand in `activation_checks`, a file an exercise."""

from activation_checks.fetching import *  # noqa: F403
from activation_checks.gathering import *  # noqa: F403
from activation_checks.keeping import *  # noqa: F403
from activation_checks.recomputing import *  # noqa: F403
