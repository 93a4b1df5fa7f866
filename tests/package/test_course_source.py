"""Stubs are cut from the package's own source."""

import pytest

import course_toy
from course import source


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch):
    yield course_toy.use(tmp_path, monkeypatch)
    course_toy.forget()


def test_a_stub_keeps_decorators_signature_and_docstring_and_nothing_of_the_body():
    assert source.stub("toy.sums.add") == (
        "@twice\n"
        "def add(a, b=1, *rest, scale: int = 1) -> int:\n"
        '    """The sum,\n'
        '    twice."""\n'
        "    raise NotImplementedError\n"
    )


def test_a_method_is_a_plain_def():
    assert source.stub("toy.shapes.Square.area").startswith('def area(self):\n    """Side')
    assert source.reference("toy.shapes.Square.double").startswith("@property\ndef double(self):")


def test_the_reference_is_the_whole_function():
    assert source.reference("toy.sums.add").endswith("return scale * (a + b + sum(rest))\n")


def test_every_stub_is_recognised_and_no_reference_is():
    for path in course_toy.EXERCISES:
        name = path.rpartition(".")[2]
        assert source.is_stub(source.stub(path), name)
        assert not source.is_stub(source.reference(path), name)


@pytest.mark.parametrize(
    ("body", "stub"),
    [
        ("raise NotImplementedError", True),
        ("raise NotImplementedError('soon')", True),
        ("'''Doc.'''", True),
        ("pass", False),
        ("x = 1\n    raise NotImplementedError", False),
        ("raise ValueError", False),
    ],
)
def test_what_counts_as_a_stub(body, stub):
    assert source.is_stub(f"def add(a):\n    {body}\n", "add") is stub


def test_broken_text_and_another_name_are_work_not_stubs():
    assert not source.is_stub("def add(:", "add")
    assert not source.is_stub("def plus(a):\n    raise NotImplementedError", "add")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("nowhere.sums.add", "nowhere"),
        ("toy.absent.add", "toy.absent"),
        ("toy.sums.subtract", "subtract"),
        ("toy.shapes.Square", "not a function"),
    ],
)
def test_a_wrong_path_is_named(path, named):
    with pytest.raises(source.PieceNotFound, match=named):
        source.locate(path)
