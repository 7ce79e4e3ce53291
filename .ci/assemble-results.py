#!/usr/bin/env python3
"""Make results/<gpu>.json of one run's logs and figures.

    assemble-results.py COMMIT OUT

OUT holds tests.log and tests.status, the same two of conformance, memcheck.json, gpus.csv (name, driver of each GPU) and, from each benchmark,
NAME.figures.jsonl, or else bench-NAME.log with such lines in it. A line is a JSON object. The first
says which commit the benchmark was built from, {"commit": …}, and each other one is a figure:

    {"id": …, "value": median of runs, "ours": …, "base": …, "unit": …, "base_is": …, "runs": […]}

A benchmark that has none says so in its only line: {"commit": …, "figures": "none"}.

Exits with 1, having written what it could, where something is missing or contradicts itself.
"""

import datetime
import json
import pathlib
import re
import statistics
import sys

FIELDS = ("id", "value", "ours", "base", "unit", "base_is", "runs")


class Problems(list):
    def note(self, text):
        print(text, file=sys.stderr)
        self.append(text)


def machine(out, problems):
    rows = (out / "gpus.csv").read_text().splitlines() if (out / "gpus.csv").exists() else []
    gpus = [[field.strip() for field in row.split(",")] for row in rows if "," in row]
    if not gpus:
        problems.note("no GPU is named in gpus.csv")
        return {"gpu": None, "gpus": 0, "driver": None}
    return {"gpu": gpus[0][0], "gpus": len(gpus), "driver": gpus[0][1]}


def tests(out, name, problems):
    log = (out / f"{name}.log").read_text(errors="replace")
    status = int((out / f"{name}.status").read_text())
    summary = re.search(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", log, re.M)
    if summary:
        counts = dict(zip(("passed", "failed", "skipped"), map(int, summary.groups())))
    else:
        # Killed half-way: what was seen to pass did, and at least one did not.
        problems.note(f"{name}: did not come to an end")
        ends = re.findall(r"^test .* \.\.\. (ok|FAILED|ignored)", log, re.M)
        counts = {
            "passed": ends.count("ok"),
            "failed": ends.count("FAILED") + 1,
            "skipped": ends.count("ignored"),
        }
    if status != 0 and counts["failed"] == 0:
        problems.note(f"{name}: no test failed, yet they exited with {status}")
        counts["failed"] = 1
    return counts


def memcheck(out, problems):
    """How many findings compute-sanitizer had: in the suite, and of what is made to fault."""
    path = out / "memcheck.json"
    if not path.exists():
        problems.note("memcheck did not come to an end")
        return None
    return json.loads(path.read_text())


def lines_of(log):
    """The file and the numbered JSON lines of the benchmark that wrote this log."""
    path = log.with_name(log.stem.removeprefix("bench-") + ".figures.jsonl")
    path = path if path.exists() else log
    lines = enumerate(path.read_text(errors="replace").splitlines(), 1)
    return path, [(number, line) for number, line in lines if line.startswith("{")]


def figures(out, commit, problems):
    found = {}
    for log in sorted(out.glob("bench-*.log")):
        path, lines = lines_of(log)
        # Whether the commit was told; whether it was said that there are no figures; how many.
        told, none, count = False, False, 0
        for number, line in lines:
            place = f"{path.name}:{number}"
            try:
                entry = json.loads(line)
            except ValueError as error:
                problems.note(f"{place}: {error}")
                continue
            if "id" not in entry:
                if entry.get("commit") != commit:
                    problems.note(f"{place}: built from {entry.get('commit')}, not {commit}")
                    return []
                told = True
                none = entry.get("figures") == "none"
                if "figures" in entry and not none:
                    problems.note(f"{place}: figures is {entry['figures']!r}; all it can be is 'none'")
                continue
            count += 1
            runs = entry.get("runs") or []
            if entry["id"] in found:
                problems.note(f"{place}: {entry['id']} was given before")
            elif not runs:
                problems.note(f"{place}: {entry['id']} has no runs")
            elif abs(statistics.median(runs) - entry["value"]) > 0.01 * max(abs(entry["value"]), 1e-9):
                problems.note(f"{place}: {entry['id']} is not the median of its runs")
            else:
                unknown = [key for key in entry if key not in FIELDS]
                if unknown:
                    print(f"{place}: kept as it is: {', '.join(unknown)}")
                found[entry["id"]] = entry
        if not told:
            problems.note(f"{path.name} does not say which commit it is of")
        if none and count:
            problems.note(f"{path.name} was to have no figures and has {count}")
        elif not none and not count:
            problems.note(f"{path.name} has no figures")
    return list(found.values())


def main():
    commit, out = sys.argv[1], pathlib.Path(sys.argv[2])
    problems = Problems()
    result = {
        "commit": commit,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(out, problems),
        "tests": tests(out, "tests", problems),
        "conformance": tests(out, "conformance", problems),
        "memcheck": memcheck(out, problems),
        "figures": figures(out, commit, problems),
    }
    if not re.fullmatch("[0-9a-f]{40}", commit):
        print(f"commit {commit}: these results are for looking at, not for keeping")
    name = re.sub(r"[^a-z0-9]+", "-", str(result["machine"]["gpu"] or "no-gpu").lower()).strip("-")
    path = out / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    # A figure a line, so that a change of one shows as one.
    head = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in result.items() if key != "figures"]
    lines = ",\n".join(f"  {json.dumps(figure)}" for figure in result["figures"])
    path.write_text("\n".join(["{", *head, ' "figures": [', lines, " ]", "}", ""]))
    json.loads(path.read_text())
    print(f"{path}: {result['tests']}, {len(result['figures'])} figures")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
