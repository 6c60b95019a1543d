"""What is trained: sizes that follow from the model itself, for real and simulated programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """A model with its optimizer, trained data parallel.

    :param parameters: number of trained parameters.
    :param bytes_per_parameter: of weights and gradients; 4 for fp32.
    :param optimizer_states: values per parameter that the optimizer keeps (AdamW: 2, fp32).
    :param tokens_per_step: input elements of one rank in one step, padding included.
    """

    name: str
    parameters: int
    bytes_per_parameter: int
    optimizer_states: int
    tokens_per_step: int

    @property
    def gradient_bytes(self) -> int:
        """What one AllReduce sums up in each step."""
        return self.parameters * self.bytes_per_parameter

    @property
    def state_bytes(self) -> int:
        """Weights and optimizer state: what a replaced worker needs, and a checkpoint holds."""
        return self.gradient_bytes + self.parameters * 4 * self.optimizer_states


WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        # A stand-in, small enough for steps of tens of ms on 10 Gb/s: no published model.
        Workload("llama-nano", 5_000_000, 4, 2, 8 * 512),
        # Llama-3.2-1B, full fine-tune in fp32 with AdamW, batch 8, sequence 512 (Morphlux,
        # section 6): 1.236e9 parameters are 4.94 GB of gradients.
        Workload("llama-3.2-1b", 1_236_000_000, 4, 2, 8 * 512),
    )
}


def workload(name: str) -> Workload:
    """The workload of that name. :raises ValueError: saying which there are."""
    try:
        return WORKLOADS[name]
    except KeyError:
        raise ValueError(f"there is no model {name!r}; there are {', '.join(WORKLOADS)}") from None
