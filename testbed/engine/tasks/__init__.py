"""Built-in tasks, registered through the entry point ``testbed.tasks`` like anybody's."""

from testbed.engine.tasks import fabric, fault, flow, host, nic, power, sampling, soak, switch
from testbed.playbook.task import TaskSpec

TASKS: list[TaskSpec] = [
    *fabric.TASKS,
    *switch.TASKS,
    *soak.TASKS,
    *power.TASKS,
    *host.TASKS,
    *nic.TASKS,
    *fault.TASKS,
    *sampling.TASKS,
    *flow.TASKS,
]
