"""The scenario: one node, from its first boot to the last claim. Each step is asserted and timed.

Touches: the machine that machine.sh has made. Usage: scenario.py [STEP...] (names of functions;
`start` and `install` always run)"""

import subprocess
import sys
import time
import traceback

import api
import steps_claims
import steps_engine
import steps_node
import steps_reports
import steps_start
from components import LOGS, Cluster, kubectl

FIRST = [steps_start.start, steps_start.install]
STEPS = [
    *steps_claims.STEPS,
    *steps_reports.CLAIMS,
    *steps_engine.STEPS,
    *steps_node.STEPS,
    *steps_engine.LAST,
    *steps_claims.LAST,
    *steps_reports.LAST,
    steps_start.permissions,
    steps_start.nothing_is_left,
]


def state(cluster):
    """What is known about the cluster when a step has failed."""
    yield f"programs that have ended: {cluster.ended()}"
    for words in [
        ["get", "pods,resourceclaims", "-A", "-o", "wide"],
        ["get", "events", "-A", "--sort-by=.lastTimestamp"],
        ["-n", "gpuslice", "logs", "daemonset/gpuslice", "--all-containers", "--tail=20"],
    ]:
        done = kubectl(*words, check=False)
        yield "\n".join((done.stdout + done.stderr).splitlines()[-40:])


def main(chosen):
    names = [step.__name__ for step in STEPS]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        sys.exit(f"no step {', '.join(unknown)} (there are {', '.join(names)})")
    cluster = Cluster("rtx3090")
    started = time.monotonic()
    for step in [*FIRST, *(step for step in STEPS if not chosen or step.__name__ in chosen)]:
        begun = time.monotonic()
        try:
            facts = step(cluster)
        except (AssertionError, api.Refused, OSError, subprocess.SubprocessError, LookupError, ValueError) as error:
            traceback.print_exc()
            print(f"FAILED {step.__name__}: {step.__doc__}\n{error}", flush=True)
            try:
                print("\n".join(state(cluster)))
            except (OSError, subprocess.SubprocessError) as other:
                print(f"the cluster does not say more: {other}")
            sys.exit(1)
        print(f"ok {time.monotonic() - begun:6.1f} s  {step.__doc__}", flush=True)
        for fact in facts or []:
            print(f"             {fact}", flush=True)
    print(f"the scenario passed in {time.monotonic() - started:.0f} s; logs: {LOGS.name} in target/cluster")


main(sys.argv[1:])
