"""Find phrases in README and docs that plain technical English does not use; list each place."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Each phrase, and what to write instead.
PHRASES = {
    r"is wanted|are wanted": "is required",
    r"there (is|are) none (that|of|which)": "no ...",
    r"of which nothing|nothing of (it|them) is": "empty",
    r"\banew\b": "again",
    r"\blikewise\b": "also",
    r"\bthereby\b": "so, by this",
    r"\bheeds?\b": "respects",
    r"\ba share of\b": "a fraction of",
    r"\bas many as there are\b": "all",
    r"\bwhoever\b": "anyone who",
    r"\bknows? nothing of\b": "does not depend on",
    r"\bby heart\b": "memorizes",
    r"\bin place of\b": "instead of",
    r"\b(stands?|lies) (under|in|below) (the|a|its)\b": "is in",
    r"\bis told\b|\bare told\b": "is logged, receives",
    r"\bthe body of the stage\b": "the stage",
    r"\b[Tt]o name the\b": "if you set the",
    r"\bfrom then on\b": "after that",
    r"\bmends?\b|\bmended\b": "fixes",
    r"\bdraws? what\b": "samples what",
    r"\bsay,? \w+ of another\b": "for example",
}
GENERATED = {"docs/reference/params.md"}


def lines() -> Iterator[tuple[Path, int, str]]:
    """Yield the file, number and text of each line of prose; code blocks are left out."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in pages:
        if path.relative_to(ROOT).as_posix() in GENERATED:
            continue
        code = False
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if text.lstrip().startswith("```"):
                code = not code
            elif not code:
                yield path, number, re.sub(r"`[^`]*`", "`code`", text)


def main() -> int:
    """Print each phrase with its place and the alternative; return 1 if there are any."""
    matches = [
        f"{path.relative_to(ROOT)}:{number}: {match.group(0)!r}: write {better!r}"
        for path, number, text in lines()
        for phrase, better in PHRASES.items()
        if (match := re.search(phrase, text, re.IGNORECASE))
    ]
    print("\n".join(matches) or "prose: no phrase of the list")
    return int(bool(matches))


if __name__ == "__main__":
    sys.exit(main())
