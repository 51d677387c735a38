"""A module under test, what is drawn for it, and the register of everything that may be done to it."""

from torch import nn


class NothingToDo(Exception):
    """What was to be done does not apply to this module as it is."""


class Case:
    """A module under test, a number to draw from, and a patch that is undone with the module."""

    def __init__(self, net, patch, number):
        self.net, self.patch, self.number = net, patch, number

    def of(self, items):
        """One of them, by the number."""
        items = list(items)
        return items[self.number % len(items)] if items else None

    @property
    def part(self):
        return self.of(self.net.modules())

    @property
    def linear(self):
        return self.of(part for part in self.net.modules() if isinstance(part, nn.Linear))

    @property
    def weight(self):
        """A module and the name of one of its parameters."""
        return self.of(
            (part, name) for part in self.net.modules() for name, p in part._parameters.items() if p is not None
        )

    @property
    def buffer(self):
        return self.of(
            (part, name) for part in self.net.modules() for name, b in part._buffers.items() if b is not None
        )

    def child(self):
        """A module, and the name of one of its submodules."""
        return self.of((part, name) for part in self.net.modules() for name in part._modules)


MUTATIONS = {}


def mutation(function):
    MUTATIONS[function.__name__] = function
    return function
