"""Run `snakemake --lint` with the exceptions of this workflow, and their reasons.

The output is read as text: Snakemake 9.27 accepts `--lint json` but still prints text.
"""

import re
import subprocess
import sys

ALLOWED = {
    "Specify a conda environment or container for each rule.": (
        "the environment is .venv, pinned by requirements.lock for both engines: a rule only calls DVC, "
        "and an environment of its own would hide from DVC what a stage runs in"
    ),
    "Shell command directly uses variable rule from outside of the rule": (
        "`{rule}` is the name of the rule itself, which Snakemake gives to every shell"
    ),
}
HEADING = re.compile(r"^Lints for (?P<where>.+):$")
LINT = re.compile(r"^    \* (?P<title>.+):$")


def remaining(text: str) -> tuple[list[str], dict[str, int]]:
    """Return the lints in Snakemake's text that are not allowed, and how often each allowed one was found."""
    where, bad, used = "", [], dict.fromkeys(ALLOWED, 0)
    for line in text.splitlines():
        if heading := HEADING.match(line):
            where = heading["where"]
        elif lint := LINT.match(line):
            if lint["title"] in used:
                used[lint["title"]] += 1
            else:
                bad.append(f"{where}: {lint['title']}")
    return bad, used


def main() -> int:
    """Print the remaining lints, and each exception with its reason; return 1 if one remains or is unused."""
    run = subprocess.run(["snakemake", "--lint"], capture_output=True, text=True)
    text = run.stdout + run.stderr
    bad, used = remaining(text)
    if run.returncode and not bad and not any(used.values()):
        bad.append(text.strip())  # the Snakefile cannot be read
    for title, count in used.items():
        print(f"snakemake --lint: allowed {count} times: {title} Because {ALLOWED[title]}.")
        if not count and not bad:
            bad.append(f"the exception `{title}` is no longer needed: remove it from {__file__}")
    print("\n".join(bad), end="\n" if bad else "")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
