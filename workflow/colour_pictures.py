#!/usr/bin/env python3
"""Fetch the colour pictures of `make demo-colour`: 3,786 captioned emoji of Twemoji, 64x64 pixels, ten classes.

    workflow/colour_pictures.py FOLDER [PACKAGE.tgz]

They come from the npm package `emoji-datasource-twitter`, of a fixed version and checksum, which `npm pack` fetches; or
from the file PACKAGE.tgz. FOLDER then holds the pictures and metadata.jsonl with class and caption of each. The
graphics are Twemoji's, (c) Twitter, Inc. and other contributors, licensed CC-BY 4.0; the package is MIT-licensed.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "emoji-datasource-twitter@16.0.0"
SHA256 = "f64a530c63bca463bd8317fdc4615ce63a53a0c65018e4ce2d848aaba7a28877"
PICTURES = "package/img/twitter/64/"
TABLE = "metadata.jsonl"  # written last, whole or not at all: a folder with it is complete
SKIN = {
    "1F3FB": "light skin",
    "1F3FC": "medium light skin",
    "1F3FD": "medium skin",
    "1F3FE": "medium dark skin",
    "1F3FF": "dark skin",
}


def main(folder: Path, archive: Path | None) -> None:
    """Write the pictures and their table into a folder, unless they exist."""
    if (folder / TABLE).is_file():
        print(f"{folder} exists already.")
        return
    with tempfile.TemporaryDirectory() as scratch:
        archive = archive or fetched(Path(scratch))
        if (digest := hashlib.sha256(archive.read_bytes()).hexdigest()) != SHA256:
            sys.exit(f"{archive} is not {PACKAGE}: its SHA-256 is {digest}, but must be {SHA256}.")
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            for member in tar:
                picture = tar.extractfile(member)
                if picture is None:  # a folder
                    continue
                if member.name == "package/emoji.json":
                    described = json.load(picture)
                elif member.name.startswith(PICTURES):
                    (folder / Path(member.name).name).write_bytes(picture.read())
    rows = [row for emoji in described for row in rows_of(emoji) if (folder / row["file_name"]).is_file()]
    unfinished = folder / f".{TABLE}"
    unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
    unfinished.replace(folder / TABLE)
    print(f"{folder}: {len(rows):,} pictures. Graphics: Twemoji, CC-BY 4.0.")


def fetched(scratch: Path) -> Path:
    """Return the package's archive, which npm downloads into a folder and checks."""
    if shutil.which("npm") is None:
        sys.exit(
            f"npm, which fetches {PACKAGE}, is not installed: install Node.js, or download the package's .tgz "
            "and name it: workflow/colour_pictures.py FOLDER PACKAGE.tgz"
        )
    done = subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=scratch, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"npm could not fetch {PACKAGE}:\n{done.stderr.strip()}")
    return next(scratch.glob("*.tgz"))


def rows_of(emoji: dict) -> list[dict[str, str]]:
    """Return file, class and caption of an emoji and of its variants in other skin colours."""
    name = emoji["name"].lower()
    rows = [(emoji["image"], name)]
    for variant in emoji.get("skin_variations", {}).values():
        tones = [SKIN[code] for code in variant["unified"].split("-") if code in SKIN]
        rows.append((variant["image"], f"{name}, {' and '.join(tones)}"))
    return [{"file_name": file, "label": emoji["category"], "text": text} for file, text in rows]


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else None)
