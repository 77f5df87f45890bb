"""Which layer a pass has reached, from the number of operations it has done."""

import sys


class PassPosition:
    """Follows a pass through the layers.

    An engine tells how many operations it has done, not where it is. As layers are alike, the
    share of the operations of the last whole pass gives the layer; in the first it stays unknown.
    """

    def __init__(self, n_layers: int) -> None:
        self._n_layers = n_layers
        self._operations = 0
        self._usual_operations = 0
        """Of the last whole pass; 0 before the first."""
        self._next = sys.maxsize
        """Operations at which the next layer begins."""
        self.layer = 0
        """Layer that is computed; n_layers for what follows the layers."""

    def begin(self) -> None:
        """Start a pass."""
        self._operations = self.layer = 0
        self._next = self._next_layer_at()

    def advance(self) -> bool:
        """Count an operation; whether a layer begins with the next one."""
        self._operations += 1
        if self._operations < self._next:
            return False
        self.layer += 1
        self._next = self._next_layer_at()
        return True

    def end(self) -> None:
        """End a whole pass."""
        self._usual_operations = self._operations

    def _next_layer_at(self) -> int:
        if not self._usual_operations or self.layer == self._n_layers:
            return sys.maxsize
        return -(-self._usual_operations * (self.layer + 1) // self._n_layers)
