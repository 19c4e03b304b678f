"""Makes the pages and lines that show answers.

As a program, it writes QUESTIONS.md and the table of RESULTS.md.
Usage: pages.py [--check], in the repository.
Touches: tests/gpu/QUESTIONS.md, RESULTS.md, answers/*.jsonl (read).
"""
import glob
import json
import os
import sys

from questions import QUESTIONS, RECORDED

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN, END = "<!-- answers -->\n", "<!-- answers end -->\n"


def answers(head, results, given):
    """Returns one line for each question: its answers by variant, or why there is none."""
    lines = []
    for identity, question, _, check, expected, _ in QUESTIONS:
        if not check:
            continue
        own = [one for one in given if one["question"] == identity]
        runs = [one for one in results if one["check"] == check]
        judged = [one["as_expected"] for one in own if one["as_expected"] is not None]
        line = dict(head, question=identity, asked=question, check=check, expected=expected)
        line["state"] = "answered" if own else "not answered"
        line["as_expected"] = None if not judged else all(judged)
        line["answers"] = {one["variant"]: one["answer"] for one in own}
        unwell = [f"{one['variant']}: {one['status']}: {one['detail'][:200]}" for one in runs if one["status"] != "pass"]
        line["why"] = "; ".join(unwell) if unwell else ("" if own else "the check was not run" if not runs else "not asked")
        lines.append(line)
    return lines


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def shown(line):
    """Returns an answer for a table cell, shortened. The line itself has the whole answer."""
    if not line["answers"]:
        return f"not answered: {line['why'][:160]}"
    texts = []
    for variant, value in line["answers"].items():
        text = value if isinstance(value, str) else json.dumps(value)
        texts.append(f"{variant}: {text[:240]}{' ...' if len(text) > 240 else ''}")
    return "; ".join(texts)


def table(lines):
    rows = ["| question | expected | as expected | answer |", "|---|---|---|---|"]
    words = {True: "yes", False: "**no**", None: "to be read"}
    for line in lines:
        verdict = words[line["as_expected"]] if line["answers"] else "-"
        rows.append(f"| {cell(line['asked'])} `{line['question']}` | {cell(line['expected'])} | {verdict} | {cell(shown(line))} |")
    return "\n".join(rows) + "\n"


def results(lines, runs):
    """Returns the page of one run."""
    head = lines[0]
    where = f"{head.get('card') or 'no GPU'}, driver {head.get('driver') or 'unknown'}, {head.get('date')}"
    warning = "" if head.get("source") == "driver" else \
        f"**SIMULATED ({head.get('sim')}): this page says nothing of a real driver.**\n\n"
    bad = [one for one in runs if one["status"] in ("fail", "error", "timeout")]
    listed = "".join(f"- {one['check']} {one['variant']}: {one['status']}: {one['detail'][:300]}\n" for one in bad)
    return (f"# Answers of {where}\n\n{warning}One line of `answers.jsonl` for each row, with the whole answer.\n\n{table(lines)}\n"
            f"## Checks that failed\n\n{listed or 'None.'}\n")


def recorded():
    """Returns the lines of the runs on real GPUs that are in the repository."""
    found = []
    for path in sorted(glob.glob(os.path.join(HERE, "..", "answers", "*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        if any(line["source"] != "driver" for line in lines):
            raise SystemExit(f"{path} is of no real driver")
        found += [line for line in lines if line["state"] == "answered"]
    return found


def questions_page(lines):
    """Returns the text of QUESTIONS.md."""
    known = {}
    for line in lines:
        known.setdefault(line["question"], []).append(f"{line['card']}, {line['driver']}")
    groups = {"answered": [], "open": [], "elsewhere": []}
    for identity, question, why, check, expected, assumed_in in QUESTIONS:
        if not check:
            groups["elsewhere"].append(f"| {cell(question)} `{identity}` | {cell(why)} | {cell(expected)} | {cell(assumed_in)} |")
            continue
        by = known.get(identity, []) + ([RECORDED[identity]] if identity in RECORDED else [])
        state = "answered by recording: " + "; ".join(by) if by else "not yet asked"
        groups["answered" if by else "open"].append(
            f"| {cell(question)} `{identity}` | {cell(why)} | `{check}` | {cell(expected)} | {state} | {cell(assumed_in)} |")
    head = "| question | why it matters | check | expected answer | state | assumed in |\n|---|---|---|---|---|---|\n"
    rows = "\n".join(groups["open"] + groups["answered"])
    return f"""# Questions for a real GPU

Only a real GPU can answer these questions. `make gpu-kit` packs the checks. `target/gpu-kit/run.sh
--out DIR` runs every check within eight minutes; `--only CHECK` runs one. The file
`DIR/answers.jsonl` has one line for each question, and `DIR/RESULTS.md` shows them as a table.

- A state is *answered by recording* when `tests/gpu/answers/` or `tests/sim/recorded/` holds the answer of NVIDIA's own driver, *not yet
  asked* before that.
- *Assumed in* names the file of this repository that assumes the answer.

This page is made by `python3 tests/gpu/suite/pages.py` from `tests/gpu/suite/questions.py`.

{head}{rows}

## Cannot be asked on a machine with one discrete GPU

| question | why it matters | what it needs | assumed in |
|---|---|---|---|
{chr(10).join(groups["elsewhere"])}
"""


def results_table(lines):
    """Returns the text between the markers in RESULTS.md."""
    if not lines:
        return "No question has been answered on a real GPU.\n"
    rows = ["| question | card, driver, date | as expected | answer |", "|---|---|---|---|"]
    words = {True: "yes", False: "**no**", None: "to be read"}
    for line in lines:
        rows.append(f"| {cell(line['asked'])} `{line['question']}` | {line['card']}, {line['driver']}, {line['date']} | "
                    f"{words[line['as_expected']]} | {cell(shown(line))} |")
    return "\n".join(rows) + "\n"


def main():
    lines, stale = recorded(), []
    path = os.path.join(HERE, "..", "RESULTS.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    before, rest = text.split(BEGIN)
    pages = {os.path.join(HERE, "..", "QUESTIONS.md"): questions_page(lines),
             path: before + BEGIN + results_table(lines) + END + rest.split(END)[1]}
    for path, new in pages.items():
        old = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        if old != new:
            stale.append(os.path.basename(path))
            if "--check" not in sys.argv:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(new)
    if stale and "--check" in sys.argv:
        raise SystemExit(f"not as pages.py would write them: {', '.join(stale)}")


if __name__ == "__main__":
    main()
