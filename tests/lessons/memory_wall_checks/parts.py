"""Checks of `paper_parts`: where 16 bytes a parameter go."""

import pytest

from course.checks import exercise, fail, require
from zero.formulas import paper_parts

BYTES = {"parameters": 2, "gradients": 2, "master": 4, "moments": 8}
MISTAKES = {
    ("parameters", 4): ("fp32-parameters", "parameters have 16 bits, that is 2 bytes"),
    ("parameters", 16): ("bits-for-bytes", "that is bits; a byte has 8"),
    ("gradients", 4): ("fp32-gradients", "gradients have 16 bits, that is 2 bytes"),
    ("master", 2): ("16-bit-master", "the master copy is fp32: 4 bytes"),
    ("master", 0): ("no-master", "the fp32 master copy is missing"),
    ("moments", 4): ("one-moment", "Adam keeps two moments, each fp32"),
    ("moments", 2): ("16-bit-moments", "two moments of fp32 are 8 bytes"),
}


@exercise("zero.formulas.paper_parts")
def test_keys():
    """A dict with the four kinds"""
    got = paper_parts(1)
    require(isinstance(got, dict), f"paper_parts(1) gives {got!r}, not a dict.", "wrong-type")
    missing, extra = [k for k in BYTES if k not in got], [k for k in got if k not in BYTES]
    require(not missing, f"These keys are missing: {', '.join(missing)}.", "key-missing")
    require(not extra, f"There should be no key {extra[:1]}.", "key-too-many")


@exercise("zero.formulas.paper_parts")
@pytest.mark.parametrize("kind", BYTES)
def test_one_parameter(kind):
    """The bytes of a single parameter"""
    got, right = paper_parts(1)[kind], BYTES[kind]
    mistake, sentence = MISTAKES.get((kind, got), ("", "count the numbers and their bytes again"))
    text = f'paper_parts(1)["{kind}"]: {sentence}.\nexpected  {right}\ngot       {got}'
    require(got == right, text, mistake)


@exercise("zero.formulas.paper_parts")
@pytest.mark.parametrize("parameters", [3, 124e6, 7e9])
def test_many(parameters):
    """Many parameters, in bytes"""
    got = paper_parts(parameters)
    for kind, size in BYTES.items():
        expected = size * parameters
        if got[kind] == expected:
            continue
        mistake, sentence = "", "it must grow with the number of parameters"
        if got[kind] == size:
            mistake, sentence = "one-parameter-only", "that is the value for one parameter"
        both = f"expected  {expected:,.0f}\ngot       {got[kind]}"
        fail(f'paper_parts({parameters:,.0f})["{kind}"]: {sentence}.\n{both}', mistake)
