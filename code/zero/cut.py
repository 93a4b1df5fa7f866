"""Where to cut a model into units: which module becomes one, and which parameters it owns."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

LISTS = (nn.ModuleList, nn.Sequential)


@dataclass
class Part:
    """One future unit: `module` (called `name`), the modules in it that are in no smaller part, the
    parameters that it owns, and the weights it uses that another part owns (tied weights)."""

    name: str
    module: nn.Module
    modules: list[nn.Module] = field(default_factory=list)
    own: list[nn.Parameter] = field(default_factory=list)
    tied: list[nn.Parameter] = field(default_factory=list)


def cut(model: nn.Module, classes: list[type] | None = None) -> list[Part]:
    """Divide the parameters of `model` among parts; every parameter is owned exactly once.

    A parameter belongs to the innermost chosen module around it; a tied one to the part that comes
    first. Parts that use no parameter are left out. Which modules are chosen says `find_units`.
    """
    parts = {m: Part(name or "root", m) for name, m in find_units(model, classes)}
    part_of: dict[nn.Module, Part] = {}
    for module, part in parts.items():  # outermost first, so the innermost has the last word
        part_of.update(dict.fromkeys(module.modules(), part))
    owned: set[nn.Parameter] = set()
    for module in model.modules():
        part_of[module].modules.append(module)
        for p in module._parameters.values():
            if p is None:
                continue
            part = part_of[module]
            if p not in owned:
                owned.add(p)
                part.own.append(p)
            elif not any(p is q for q in part.own):
                part.tied.append(p)
    return [part for part in parts.values() if part.own or part.tied]


def find_units(model: nn.Module, classes: list[type] | None = None) -> list[tuple[str, nn.Module]]:
    """The chosen modules with their names, outermost first; the model itself is always one.

    By default: every child of a ModuleList or Sequential, and every other module that has no such
    list inside (an embedding, a head). What is left belongs to the module that holds the lists.
    With `classes`: every module of one of these classes. ValueError if there is none, TypeError
    for what is no class.
    """
    if classes is None:
        return [("", model), *_descend("", model)]
    if not all(isinstance(c, type) for c in classes):
        raise TypeError(f"units={classes!r} must be a list of module classes, as [nn.Linear]")
    chosen = [(n, m) for n, m in model.named_modules() if n and isinstance(m, tuple(classes))]
    if not chosen:
        names = ", ".join(c.__name__ for c in classes)
        raise ValueError(f"units=[{names}]: the model contains no module of these classes")
    return [("", model), *chosen]


def _descend(name: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
    chosen = []
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}" if name else child_name
        if not _is_called(child):
            chosen += _descend(path, child)
            continue
        chosen.append((path, child))
        holds_list = any(isinstance(m, LISTS) for m in child.modules())
        if holds_list and not isinstance(module, LISTS):
            chosen += _descend(path, child)
    return chosen


def _is_called(module: nn.Module) -> bool:
    """Has it a forward pass of its own, before which it can be gathered? Mere containers have none
    (ModuleDict, ParameterList): parameters in them belong to the module that uses them."""
    return type(module).forward is not nn.Module.forward
