"""The course's pytest plugin: `--solutions`, `--exercise`, `--answer`, and "not written yet"."""

from course.plugin import (  # noqa: F401
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_pyfunc_call,
    pytest_report_teststatus,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)
