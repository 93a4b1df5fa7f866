"""All tests run on the CPU, as the lessons do: from them GPUs are hidden.

`pytest -m gpu` sees the GPUs, and runs the tests that need one.
"""

import os


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a CUDA device; choose it with -m gpu")
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
