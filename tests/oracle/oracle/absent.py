"""Stands for packages that the imports ask for and no decision uses (kernels, images, grammars)."""

import importlib.abc
import importlib.machinery
import sys
import types


class _Any(type):
    def __getattr__(cls, n):
        if n.startswith("__"):
            raise AttributeError(n)
        return _make(n)

    def __getitem__(cls, k):
        return cls

    def __or__(cls, o):
        return cls

    def __ror__(cls, o):
        return cls


def _make(n):
    return _Any(n, (_Base,), {})


class _Base(metaclass=_Any):
    def __init__(self, *a, **k):
        pass

    def __call__(self, *a, **k):
        return self

    def __getattr__(self, n):
        if n.startswith("__"):
            raise AttributeError(n)
        return _make(n)

    def __getitem__(self, k):
        return self


class Stub(types.ModuleType):
    """A module in which every name is a class that takes anything."""

    def __getattr__(self, n):
        if n == "__version__":
            return "0.0.0"
        if n.startswith("__"):
            raise AttributeError(n)
        m = _make(n)
        setattr(self, n, m)
        return m


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the absent packages before anybody else looks for them."""

    names = ("torchvision", "IPython", "torchaudio", "decord", "llguidance", "outlines")

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        m = Stub(spec.name)
        m.__path__ = []
        return m

    def exec_module(self, m):
        pass


sys.meta_path.insert(0, Finder())
