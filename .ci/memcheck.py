#!/usr/bin/env python3
"""Run the GPU tests under compute-sanitizer's memcheck, and the faults made on purpose.

    memcheck.py TESTS OUT

TESTS is the test executable. The suite without the faulting kernels must give no finding but the
two modules that its tests have the driver refuse. Each faulting kernel then runs in a process of its
own, and must give the finding it is for and no other. Writes OUT, a JSON object with the counts.
Exits with 1 where there is a finding that nobody made on purpose, or one made on purpose is missing.
"""

import collections
import json
import os
import re
import subprocess
import sys

CHECK = ["compute-sanitizer", "--tool", "memcheck", "--target-processes", "all"]
CHECK += ["--print-limit", "100000"]
# Tests about the source need it, others a compiler; those about faults run one by one. The last are of the
# simulated device alone: they limit memory, or are long.
SKIP = ["layers::", "documents::", "exit::", "faults::"]
SKIP += ["no_threads::", "refused::", "over_a_thousand_programs"]
# Modules of the tests that the driver is to refuse, each time a device is opened.
REFUSED = {"cuModuleLoadDataEx 218", "cuModuleLoadDataEx 222"}
# What each faulting process runs, and what memcheck makes of that kernel.
FAULTS = {
    "alone": "Stack overflow at trap",
    "trap": "Stack overflow at trap",
    "out of bounds": "Invalid __global__ write of size 4 bytes at out_of_bounds",
}


def findings(log):
    """What memcheck found, each with the kernel or the call it is about."""
    lines = [line.partition("=========")[2].strip() for line in log.splitlines() if "=========" in line]
    for line, following in zip(lines, lines[1:] + [""]):
        call = re.match(r"Program hit \S+ \(error (\d+)\).* on CUDA API call to (\S+?)\.?$", line)
        kernel = re.match(r"at (\w+)", following)
        if call:
            yield f"{call[2]} {call[1]}"
        elif kernel:
            yield f"{line} at {kernel[1]}"


def run(tests, arguments, **environment):
    command = [*CHECK, tests, "--include-ignored", "--test-threads=1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    log = done.stdout + done.stderr
    # How many there were by memcheck's own count: none may escape the reading of its lines.
    told = re.search(r"ERROR SUMMARY: (\d+) error", log)
    found = collections.Counter(findings(log))
    if not told or int(told[1]) != found.total():
        sys.exit(f"{log}\nmemcheck's summary does not fit what it listed: {found}")
    return done.returncode, log, found


def main(tests, out):
    wrong = []
    status, log, found = run(tests, [part for name in SKIP for part in ("--skip", name)])
    summary = re.search(r"^test result: .*", log, re.M)
    print(f"suite: {summary[0] if summary else 'did not end'}\n  {dict(found)}")
    # memcheck's own status is that of the tests.
    if status != 0 or not summary:
        wrong.append(f"the suite exited with {status}:\n{log}")
    wrong += [f"the suite: {finding}" for finding in found if finding not in REFUSED]
    # One each whenever a device is opened.
    if len({found[refused] for refused in REFUSED}) != 1:
        wrong.append(f"the suite: one module is refused more often than the other: {dict(found)}")
    counts = {"suite": found.total() - sum(found[refused] for refused in REFUSED), "on purpose": 0}
    for fault, expected in FAULTS.items():
        arguments = ["--exact", "faults::the_faulting_process", "--nocapture"]
        _, log, found = run(tests, arguments, HEADWATER_TEST_PROCESS=fault)
        print(f"{fault}: {dict(found)}")
        if "all as promised" not in log:
            wrong.append(f"{fault}: the process did not come to its end:\n{log}")
        # Once the context is lost, calls say so.
        others = [f for f in found if f not in REFUSED and not re.search(r" (700|719)$", f)]
        counts["on purpose"] += found[expected]
        if others != [expected]:
            wrong.append(f"{fault}: {others} instead of {expected}")
    with open(out, "w") as file:
        json.dump(counts, file)
    print("\n".join(wrong) or "nothing but what was made on purpose")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
