"""The learner's files: kept, and judged without running them."""

import pytest

import course_toy
from course import pieces


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    yield course_toy.use(tmp_path, monkeypatch)
    course_toy.forget()


def test_every_replaced_version_is_kept(mine):
    for number in (1, 2, 2, 3):
        pieces.save("toy.sums.halve", f"def halve(a):\n    return {number}\n")
    history = sorted((mine / ".history" / "toy.sums.halve").glob("*.py"))
    assert [file.read_text()[-2] for file in history] == ["1", "2"]
    assert pieces.read("toy.sums.halve").endswith("3\n")


def test_a_stub_is_neither_kept_nor_counted_as_written(mine):
    pieces.start("toy.sums.halve")
    assert pieces.written() == {}
    pieces.save("toy.sums.halve", "def halve(a):\n    return a\n")
    assert list(pieces.written()) == ["toy.sums.halve"]
    assert not (mine / ".history").exists()


@pytest.mark.parametrize("path", course_toy.EXERCISES)
def test_the_stub_and_the_reference_have_no_problem(path):
    assert pieces.problem(path, pieces.source.stub(path)) is None
    assert pieces.problem(path, pieces.source.reference(path)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def halve(a)\n    return a", "Python cannot read line 1: expected ':'"),
        ("def half(a):\n    return a", "a function named halve here. It defines half."),
        ("x = 1", "It defines no function."),
        ("def halve(a, b):\n    return a", r"wanted  def halve\(a\)\n +got +def halve\(a, b\)"),
        ("def halve(b):\n    return b", r"got +def halve\(b\)"),
        ("def halve(a=2):\n    return a", r"got +def halve\(a=2\)"),
        ("def halve(a):\n    return a\n\nprint(halve(1))", r"Line 4 runs something.*\n +print"),
        ("\0", "Python cannot read"),
    ],
)
def test_what_is_wrong_with_a_text_is_said(text, said):
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(pieces.problem("toy.sums.halve", text))


def test_a_lost_decorator_is_named():
    text = pieces.source.reference("toy.sums.add").replace("@twice\n", "")
    assert "Keep the line @twice" in pieces.problem("toy.sums.add", text)


def test_a_class_around_a_method_is_named():
    text = "class Square:\n    def area(self):\n        return 1\n"
    assert "without the class Square" in pieces.problem("toy.shapes.Square.area", text)


def test_helpers_imports_and_constants_may_stand_beside_it():
    text = "'''Mine.'''\nimport math\nHALF = 0.5\n\ndef by(a):\n    return HALF * a\n\n"
    assert pieces.problem("toy.sums.halve", text + "def halve(a: float):\n    return by(a)") is None
