# Needs Python 3.11 to 3.13, git and make. Paths are relative, so a clone may lie under a folder with spaces.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PYTHON

.PHONY: demo demo-colour demo-text test test-all torture mutants docs lint format clean setup img2dataset

# The whole DAG, images of two captions, and the scores.
demo: setup
	.venv/bin/snakemake --cores all --quiet host rules
	@echo
	-@.venv/bin/darkroom sample --text "a red star on orange" --text "a yellow ring on red"
	@echo
	@.venv/bin/darkroom scores

# Text to image by CLIP, prior and decoder, on scenes of 64 pixels. It lays presets/shapes-text.yaml over params.yaml.
# Commit what it makes, to keep it; `git checkout COMMIT . && dvc checkout` gives back what an earlier commit made.
demo-text: setup
	PYTHONPATH=src .venv/bin/python -m darkroom preset shapes-text --fit
	.venv/bin/snakemake --cores all --quiet host rules
	@echo
	@.venv/bin/darkroom scores
	@echo
	@echo 'Draw your own words: .venv/bin/darkroom sample --text "a large red star at the left"'

# The same on 3,786 captioned colour pictures, which npm fetches, with settings by `darkroom init` (one to three minutes); the
# DAG then takes 10 to 12 on two cores. It rewrites params.yaml. Commit what it makes, as above.
demo-colour: setup
	workflow/colour_pictures.py data/emoji
	.venv/bin/darkroom init data/emoji --minutes 12
	.venv/bin/snakemake --cores all --quiet host rules
	@echo
	@.venv/bin/darkroom scores
	@echo
	@echo 'Draw your own words: .venv/bin/darkroom sample --text "red heart"'

test: setup
	.venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

test-all: setup
	.venv/bin/python -m pytest

# 180 SIGKILLs (60 on a GAN, 40 on a DiT, 20 on each tokenizer), crashes inside the save, flipped bits and a full disk, then
# every byte compared with trainings that were left alone: 5 to 10 minutes before the tokenizers were added, more now.
# `make test` does 7 of the kills. Writes to a temporary folder alone.
torture: setup
	PYTHONPATH=src:tests .venv/bin/python -m torture

# 30 changes of training, staleness, scoring and data code, by a fixed seed, each in a copy of the tree: the tests that
# execute the changed line must catch 26. Runs the tests once with probes in the chosen lines, then those that ran a line for each change.
mutants: setup
	PYTHONPATH=src:tests .venv/bin/python -m mutation

# The site, in build/site: open index.html.
docs: setup
	.venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps -r requirements-docs.lock
	.venv/bin/mkdocs build

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/snakefmt --check Snakefile workflow
	.venv/bin/python workflow/lint/snakefile.py
	.venv/bin/python workflow/lint/prose.py
	PYTHONPATH=src .venv/bin/python workflow/lint/house.py --trace
	PYTHONPATH=src .venv/bin/lint-imports
	.venv/bin/mypy
	PYTHONPATH=src .venv/bin/python workflow/draw_dag.py
	PYTHONPATH=src .venv/bin/python -m darkroom params --check

# Also draws docs/dag.svg and writes docs/reference/params.md.
format: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
	.venv/bin/snakefmt Snakefile workflow
	PYTHONPATH=src .venv/bin/python workflow/draw_dag.py --write
	PYTHONPATH=src .venv/bin/python -m darkroom params --write

# What the DAG made, logs and the tools' caches. DVC's cache stays: `dvc checkout` brings the outputs back.
clean:
	rm -rf data/shards data/catalog data/selection data/latents data/embeddings data/reference models samples curves reports
	rm -rf logs .snakemake .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

setup:
	@workflow/setup

# img2dataset, which downloads tables of addresses, in an environment of its own: docs/how-to/choose-data.md.
img2dataset:
	@workflow/setup-img2dataset
